/* Keeping an error while other calls may overwrite the thread's message.
 *
 *     fsdp_saved_error error;
 *     fsdp_error_save(status, &error);
 *     clean_up();                         may fail on its own
 *     return fsdp_error_restore(&error);  the first failure, on any thread
 */
#pragma once
#include <fsdp/base.h>

enum {
    FSDP_ERROR_BYTES = 1024 /* of a message, the terminating 0 included */
};

/* All zero: no error. */
typedef struct fsdp_saved_error {
    fsdp_status status;
    char message[FSDP_ERROR_BYTES]; /* of `status`; unspecified for FSDP_OK */
} fsdp_saved_error;

/* Save `status` with this thread's message. */
void fsdp_error_save(fsdp_status status, fsdp_saved_error *error);
/* Make it this thread's error. Returns its status; FSDP_OK leaves the thread's message as it is. */
fsdp_status fsdp_error_restore(const fsdp_saved_error *error);
