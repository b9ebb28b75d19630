from array import array
from collections.abc import Iterable, Sequence

from flowjoin._kernel.row_writing import Piece

def write_rows(pieces: Sequence[Piece], rows: int, first: int, last: int) -> tuple[bytes, array[int]]: ...
def encode_texts(values: Iterable[str], prefix: bytes, style: int) -> list[bytes]: ...
