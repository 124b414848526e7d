/* A file of texts as one stream of ids in memory. */
#pragma once
#include <fsdp/data.h>

#include "src/data/token_file.h"

/* Every text of `path` tokenised and ended by eos, one after the other: CSV and JSON lines
 * (options->source_column, NULL: "text"), else a text a line. Ids take 2 bytes where options'
 * vocab_size allows. Errors name file and line. *file is closed by fsdp_token_file_close();
 * *note is what fsdp_dataset_note() says of the rows, freed by the caller, or NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_text_tokens(const char *path, const fsdp_dataset_options *options,
                                             fsdp_token_file *file, char **note);
/* Are its texts in rows with keys or columns? */
FSDP_MUST_CHECK fsdp_status fsdp_texts_have_columns(const char *path, bool *have);
