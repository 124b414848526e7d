/* Writes a folder that datasets.load_from_disk() reads: a Dataset, or a DatasetDict with several
 * splits. Rows are appended one after the other; memory holds at most one batch of them. The folder
 * appears when it is complete, or not at all.
 *
 *     fsdp_arrow_writer_begin(path, FSDP_EXISTING_REFUSE, NULL, &writer);
 *     fsdp_arrow_writer_begin_split(writer, NULL, columns, 2);
 *     for each row:
 *         fsdp_arrow_writer_set_ids(writer, 0, ids, n);
 *         fsdp_arrow_writer_set_text(writer, 1, text, bytes);
 *         fsdp_arrow_writer_end_row(writer);
 *     fsdp_arrow_writer_commit(writer); */
#pragma once
#include "src/base/io.h"
#include "src/data/arrow/write_column.h"

/* A column of the rows. The strings to which it points are needed only during
 * fsdp_arrow_writer_begin_split(). */
typedef struct fsdp_arrow_column {
    const char *name;
    fsdp_arrow_column_type type;
    /* I64, I64_LIST: [n_classes] names of the classes, which make the column a ClassLabel, or a
     * list of ClassLabels; NULL: integers */
    const char *const *class_names;
    size_t n_classes;
} fsdp_arrow_column;

/* Options of a writer. {0} means the defaults. */
typedef struct fsdp_arrow_write_options {
    int64_t batch_rows;   /* rows of a batch; 0 means 1000, as in datasets */
    uint64_t shard_bytes; /* a file ends after the batch that makes it this large or larger; 0 means
                             500 MB, as in datasets */
} fsdp_arrow_write_options;

typedef struct fsdp_arrow_writer fsdp_arrow_writer;

/* Begin a folder, as fsdp_atomic_directory_begin() does. `options` may be NULL. Returns
 * FSDP_ERR_UNSUPPORTED if this build has no FlatBuffers. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_begin(const char *path, fsdp_existing existing,
                                                    const fsdp_arrow_write_options *options,
                                                    fsdp_arrow_writer **out);
/* End the current split, if there is one, and begin a split. If `name` is NULL, the folder is a
 * Dataset, and there is only this split. Otherwise it is a DatasetDict. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_begin_split(fsdp_arrow_writer *writer,
                                                          const char *name,
                                                          const fsdp_arrow_column *columns,
                                                          size_t n_columns);

/* Set the value of a column, given by its index, in the row that is being made. Values are copied.
 * A column without a value is null. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_set_ids(fsdp_arrow_writer *writer, size_t column,
                                                      const int32_t *ids, size_t count);
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_set_mask(fsdp_arrow_writer *writer, size_t column,
                                                       const int8_t *mask, size_t count);
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_set_i64s(fsdp_arrow_writer *writer, size_t column,
                                                       const int64_t *values, size_t count);
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_set_f32s(fsdp_arrow_writer *writer, size_t column,
                                                       const float *values, size_t count);
/* Set the value of a text column. `text` [bytes] must be UTF-8. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_set_text(fsdp_arrow_writer *writer, size_t column,
                                                       const char *text, size_t bytes);
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_set_i64(fsdp_arrow_writer *writer, size_t column,
                                                      int64_t value);
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_set_f32(fsdp_arrow_writer *writer, size_t column,
                                                      float value);
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_set_f64(fsdp_arrow_writer *writer, size_t column,
                                                      double value);
/* End the row. After a failure of this or of a set function, the writer can only be discarded. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_end_row(fsdp_arrow_writer *writer);

/* End the last split and move the folder to its path. The writer is freed, also on failure. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_writer_commit(fsdp_arrow_writer *writer);
/* Remove what was written, and free the writer. Accepts NULL. */
void fsdp_arrow_writer_discard(fsdp_arrow_writer *writer);
