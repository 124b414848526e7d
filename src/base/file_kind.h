/* Error messages for a file that is not of the expected kind. They say what kind of file it is. */
#pragma once
#include <fsdp/base.h>

typedef enum fsdp_file_wanted {
    FSDP_WANTED_TEXT, /* JSON. Text of an unknown kind is not reported: it may be JSON that contains
                         an error */
    FSDP_WANTED_BINARY,
    FSDP_WANTED_NUMBERS /* any bytes may be valid, so another kind of file is reported only if it is
                           certain */
} fsdp_file_wanted;

/* Explain why the file `path`, which begins with `data` [bytes], could not be read as `what` ("a
 * safetensors file"). Returns FSDP_ERR_FORMAT with a message that names the actual kind of file and
 * says how to get the right one. Returns FSDP_OK if the kind is unknown; the caller then reports
 * its own error. */
FSDP_MUST_CHECK fsdp_status fsdp_file_explain(const char *path, const char *what,
                                              fsdp_file_wanted wanted, const void *data,
                                              size_t bytes);
