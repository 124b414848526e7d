/* Reads a file of texts as one stream of ids in memory. */
#pragma once
#include <fsdp/data.h>

#include "src/data/token_file.h"

/* Tokenize every text of `path`, append eos to each, and put all ids into *file. In CSV and JSON
 * lines, the texts are in column or key options->source_column (NULL: "text"). In any other file,
 * each line that is not blank is a text. An id has 2 bytes if options->vocab_size allows it,
 * otherwise 4. The caller closes *file with fsdp_token_file_close(). CSV and JSON lines are opened
 * as a dataset, and *note is set to a copy of that dataset's fsdp_dataset_note(). If there is no
 * such note, *note is NULL. The caller frees *note. Error messages contain file and line. */
FSDP_MUST_CHECK fsdp_status fsdp_text_tokens(const char *path, const fsdp_dataset_options *options,
                                             fsdp_token_file *file, char **note);
/* Set *have to true if the texts of `path` are in columns (CSV) or under keys (JSON lines), and to
 * false if each line is a text. */
FSDP_MUST_CHECK fsdp_status fsdp_texts_have_columns(const char *path, bool *have);
