/* What a file really is that cannot be read as what its name says: for error messages. */
#pragma once
#include <fsdp/base.h>

typedef enum fsdp_file_wanted {
    FSDP_WANTED_TEXT, /* JSON: text by itself is no other kind of file */
    FSDP_WANTED_BINARY,
    FSDP_WANTED_NUMBERS /* any bytes may be right: only what is certain is another kind */
} fsdp_file_wanted;

/* Called once reading `data` [bytes] of the file `path` as `what` ("a safetensors file") failed.
 * FSDP_ERR_FORMAT naming the kind of file that it is, and how to get the right one; FSDP_OK if the
 * kind is not known: then the reader's own error counts. */
FSDP_MUST_CHECK fsdp_status fsdp_file_explain(const char *path, const char *what,
                                              fsdp_file_wanted wanted, const void *data,
                                              size_t bytes);
