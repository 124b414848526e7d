/* Saves an error while other calls may overwrite the thread's message, and restores it.
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

/* A saved error. If all fields are zero, the saved status is FSDP_OK. */
typedef struct fsdp_saved_error {
    fsdp_status status;
    char message[FSDP_ERROR_BYTES]; /* unspecified if `status` is FSDP_OK */
} fsdp_saved_error;

/* Save `status` and this thread's message in *error. */
void fsdp_error_save(fsdp_status status, fsdp_saved_error *error);
/* Set this thread's message to the saved one, and return the saved status. If that is FSDP_OK, the
 * message does not change. */
fsdp_status fsdp_error_restore(const fsdp_saved_error *error);
