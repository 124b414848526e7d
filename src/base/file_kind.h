/* Error messages for a file that is not of the expected kind. A message says what kind of file it
 * is. */
#pragma once
#include <fsdp/base.h>

typedef enum fsdp_file_wanted {
    /* JSON is expected. Text of an unknown kind is not reported, because it may be JSON that
     * contains an error. */
    FSDP_WANTED_TEXT,
    FSDP_WANTED_BINARY,
    /* Any bytes may be valid, so another kind of file is reported only if its kind is certain. */
    FSDP_WANTED_NUMBERS
} fsdp_file_wanted;

/* Explain why the file `path`, which begins with `data` [bytes], could not be read as `what` ("a
 * safetensors file"). Return FSDP_ERR_FORMAT with a message that names the actual kind of the file
 * and says how to get the right file. Return FSDP_OK if the kind is unknown; the caller must report
 * its own error in this case. */
FSDP_MUST_CHECK fsdp_status fsdp_file_explain(const char *path, const char *what,
                                              fsdp_file_wanted wanted, const void *data,
                                              size_t bytes);
