from array import array
from collections.abc import Sequence

from flowjoin._kernel.row_writing import Piece

def write_rows(pieces: Sequence[Piece], rows: int) -> tuple[bytes, array[int]]: ...
