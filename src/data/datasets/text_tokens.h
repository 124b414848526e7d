/* Reads a file of texts as one stream of ids in memory. */
#pragma once
#include <fsdp/data.h>

#include "src/data/tokens/token_file.h"

/* Tokenize every text of `path`, append eos to each, and put all ids into *file. In CSV and JSON,
 * the texts are in column or key options->source_column (NULL: "text"). Plain text is divided into
 * documents as options->documents says. An id has 2 bytes if options->vocab_size allows it,
 * otherwise 4. The caller closes *file with fsdp_token_file_close(). CSV and JSON are opened as a
 * dataset, and *note is set to a copy of that dataset's fsdp_dataset_note(). If there is no such
 * note, *note is NULL. The caller frees *note. Error messages contain file and line. */
FSDP_MUST_CHECK fsdp_status fsdp_text_tokens(const char *path, const fsdp_dataset_options *options,
                                             fsdp_token_file *file, char **note);
