/* Keeping an error while other calls may overwrite the thread's message.
 *
 *     fsdp_saved_error error;
 *     fsdp_error_save(status, &error);
 *     clean_up();                         may fail and set a message of its own
 *     return fsdp_error_restore(&error);  restores the message; any thread may do this
 */
#pragma once
#include <fsdp/base.h>

enum {
    FSDP_ERROR_BYTES = 1024 /* size of a message, including the terminating 0 */
};

/* If all fields are zero, there is no error. */
typedef struct fsdp_saved_error {
    fsdp_status status;
    char message[FSDP_ERROR_BYTES]; /* the message of the error `status`; unspecified if `status` is
                                       FSDP_OK */
} fsdp_saved_error;

/* Save `status` with this thread's message. */
void fsdp_error_save(fsdp_status status, fsdp_saved_error *error);
/* Make `error` the error of this thread, and return its status. If the status is FSDP_OK, the
 * thread's message does not change. */
fsdp_status fsdp_error_restore(const fsdp_saved_error *error);
