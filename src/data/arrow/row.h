/* Converts a row of an Arrow file to the JSON object that the same row would have in a file of JSON
 * lines. */
#pragma once
#include "src/base/json.h"
#include "src/data/arrow/batch.h"

enum {
    FSDP_ARROW_ROW_BYTES_MAX = 64 << 20 /* largest size of a row. row.c estimates the size: the
                                           bytes of the texts, 4 bytes for each number, and so on */
};

/* Return true if values of this field can be read. Numbers, bools, texts, and lists and structs of
 * these can be read. If a struct has children that cannot be read, only its other children are
 * read. */
bool fsdp_arrow_is_readable(const fsdp_arrow_schema *schema, size_t field);

/* Read row `row`, 0 <= row < rows of the file. The object has the columns for which wanted[index of
 * the field] is true, in the order of the schema. A null value in the file becomes a JSON null.
 * `wanted` must be false for columns that cannot be read (fsdp_arrow_is_readable()). Texts that are
 * not UTF-8, or contain a NUL, are refused. Returns FSDP_ERR_FORMAT if the file is damaged, and
 * FSDP_ERR_UNSUPPORTED if the row is larger than FSDP_ARROW_ROW_BYTES_MAX. The message of an error
 * contains the batch, the row in it and the column, but not the file. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_row_read(fsdp_arrow_cache *cache,
                                                const fsdp_arrow_file *file, int64_t row,
                                                const bool *wanted, fsdp_json **doc);
