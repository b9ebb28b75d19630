/* Memory that will be written from end to end soon: its pages all at once, for a tenth of storing a flow would go
   into a page fault for every eighth one. Where the system cannot do that, they come one by one. */
#ifndef FLOWJOIN_PAGES_H
#define FLOWJOIN_PAGES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__linux__)
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older ones refuse it, which does no harm */
#endif

enum { PAGE_OCTETS = 4096 }; /* with larger ones it is refused */

static inline void want_pages(void *block, size_t octets) {
    uintptr_t first = ((uintptr_t)block + PAGE_OCTETS - 1) & ~(uintptr_t)(PAGE_OCTETS - 1);
    uintptr_t end = ((uintptr_t)block + octets) & ~(uintptr_t)(PAGE_OCTETS - 1);
    if (end > first) (void)madvise((void *)first, end - first, MADV_POPULATE_WRITE);
}
#else
static inline void want_pages(void *block, size_t octets) {
    (void)block;
    (void)octets;
}
#endif

#endif
