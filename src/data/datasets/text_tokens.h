/* Reads a file of texts as one stream of ids in memory. */
#pragma once
#include <fsdp/data.h>

#include "src/data/datasets/dataset.h"
#include "src/data/tokens/token_file.h"

/* Tokenize every text of `path`, append eos to each, and put all ids into *file. In CSV and JSON,
 * the texts are in column or key options->source_column (NULL: "text"). Plain text is divided into
 * documents as options->documents says. An id has 2 bytes if options->vocab_size allows it,
 * otherwise 4. The caller closes *file with fsdp_token_file_close(). *note is set to a text for
 * fsdp_dataset_note(), or to NULL if there is nothing to say. The text says how many texts contain
 * special tokens, and how many contain unknown characters. For CSV and JSON, it begins with the
 * note of the rows, which says for example which columns are not used. The caller frees *note.
 * *rows is set to the number of texts that were read. Error messages contain file and line. */
FSDP_MUST_CHECK fsdp_status fsdp_text_tokens(const char *path, const fsdp_dataset_options *options,
                                             fsdp_token_file *file, char **note,
                                             fsdp_file_rows *rows);
