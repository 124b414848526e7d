/* Reads a file of texts as one stream of ids in memory. */
#pragma once
#include <fsdp/data.h>

#include "src/data/token_file.h"

/* Tokenize every text of `path`, each followed by eos. Texts come from CSV and JSON lines
 * (options->source_column, NULL: "text"), else each line is a text. Ids take 2 bytes if
 * options->vocab_size allows. Errors name file and line. The caller closes *file by
 * fsdp_token_file_close(). *note is the fsdp_dataset_note() of the rows, freed by the caller, or
 * NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_text_tokens(const char *path, const fsdp_dataset_options *options,
                                             fsdp_token_file *file, char **note);
/* Whether the texts are in rows with keys or columns. */
FSDP_MUST_CHECK fsdp_status fsdp_texts_have_columns(const char *path, bool *have);
