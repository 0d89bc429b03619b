"""Optional part: samples on a GPU, or moved there block by block, on which fits compute with torch."""
