/* Rows that pack_dataset.c cuts into many pieces (Note [Packing] in pack_dataset.c). Their ids and
 * labels are kept in a file without a name, so that reading a piece does not tokenize the whole row
 * again, and memory does not depend on the length of the rows. */
#pragma once
#include <fsdp/data.h>

typedef struct fsdp_long_rows fsdp_long_rows;

FSDP_MUST_CHECK fsdp_status fsdp_long_rows_create(fsdp_long_rows **out);
void fsdp_long_rows_close(fsdp_long_rows *rows); /* accepts NULL */
/* Append the ids and labels of a row. If a row has no labels, its ids are its labels. Rows are
 * added in ascending order of `row`. Returns FSDP_ERR_IO if the file cannot be written. */
FSDP_MUST_CHECK fsdp_status fsdp_long_rows_add(fsdp_long_rows *rows, int64_t row,
                                               const fsdp_example *example);
/* Return true if the row was added. */
bool fsdp_long_rows_have(const fsdp_long_rows *rows, int64_t row);
/* Read ids and labels [first, first + count) of a row that was added. Any thread may do this. */
FSDP_MUST_CHECK fsdp_status fsdp_long_rows_read(const fsdp_long_rows *rows, int64_t row,
                                                size_t first, size_t count, int32_t *ids,
                                                int32_t *labels);
