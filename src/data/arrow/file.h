/* An Arrow file. It has one of two formats: the stream format, which is a sequence of messages, or
 * the file format, which also has a footer with the offsets of the messages. The file is mapped.
 * Opening it reads the metadata of all batches, but no values. */
#pragma once
#include "src/data/arrow/metadata.h"

typedef struct fsdp_arrow_file fsdp_arrow_file;

/* Open a file. Error messages contain the path. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_file_open(const char *path, fsdp_arrow_file **out);
void fsdp_arrow_file_close(fsdp_arrow_file *file); /* accepts NULL */

/* Return true if the file begins like an Arrow file of either format. Also return true if it begins
 * like a file of Feather 1 or Parquet: fsdp_arrow_file_open() then refuses the file with a message
 * that says how to convert it. Returns false if the file cannot be read. */
bool fsdp_arrow_file_is(const char *path);

const char *fsdp_arrow_file_path(const fsdp_arrow_file *file);
const fsdp_arrow_schema *fsdp_arrow_file_schema(const fsdp_arrow_file *file);
int64_t fsdp_arrow_file_rows(const fsdp_arrow_file *file);
size_t fsdp_arrow_file_bytes(const fsdp_arrow_file *file);

/* Find the batch that has row `row`, 0 <= row < rows. Set *first to the first row of the batch.
 * Returns the index of the batch. */
size_t fsdp_arrow_file_find(const fsdp_arrow_file *file, int64_t row, int64_t *first);

/* A message with the bytes of its body, which are mapped. Free it with fsdp_arrow_message_fini().
 */
typedef struct fsdp_arrow_located {
    fsdp_arrow_message message;
    const unsigned char *body; /* [message.body_bytes] */
    uint64_t offset;           /* offset of the message in the file */
} fsdp_arrow_located;

/* Read the metadata of batch `index`. Error messages do not name the path. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_file_batch(const fsdp_arrow_file *file, size_t index,
                                                  fsdp_arrow_located *out);
/* Find the dictionary batch that has value `value` of dictionary `id`. A dictionary may change
 * within a file. This function uses the version that applies to record batch `index`. Set *offset
 * to the offset of the dictionary batch, and *at to the index of the value in that batch. Returns
 * FSDP_ERR_FORMAT if the dictionary does not have this value. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_file_dictionary(const fsdp_arrow_file *file, size_t index,
                                                       int64_t id, uint64_t value, uint64_t *offset,
                                                       int64_t *at);
/* Read the metadata of the dictionary batch at `offset`, which fsdp_arrow_file_dictionary() found.
 */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_file_dictionary_batch(const fsdp_arrow_file *file,
                                                             uint64_t offset,
                                                             fsdp_arrow_located *out);
