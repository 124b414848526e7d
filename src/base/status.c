/* Status codes, and the message of each thread's last error. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/error.h"

static _Thread_local char message[FSDP_ERROR_BYTES];

const char *fsdp_status_name(fsdp_status status)
{
    switch (status) {
    case FSDP_OK:
        return "OK";
    case FSDP_ERR_INVALID:
        return "INVALID";
    case FSDP_ERR_NOT_FOUND:
        return "NOT_FOUND";
    case FSDP_ERR_FORMAT:
        return "FORMAT";
    case FSDP_ERR_UNSUPPORTED:
        return "UNSUPPORTED";
    case FSDP_ERR_IO:
        return "IO";
    case FSDP_ERR_NOMEM:
        return "NOMEM";
    case FSDP_ERR_STATE:
        return "STATE";
    case FSDP_ERR_COMM:
        return "COMM";
    case FSDP_ERR_TIMEOUT:
        return "TIMEOUT";
    case FSDP_ERR_NUMERIC:
        return "NUMERIC";
    }
    return "UNKNOWN";
}

const char *fsdp_last_error(void)
{
    return message;
}

fsdp_status fsdp_error(fsdp_status status, const char *format, ...)
{
    /* An argument may be the old message itself, so the new one is formatted in a second buffer. */
    char fresh[FSDP_ERROR_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    memcpy(message, fresh, sizeof message);
    return status;
}

void fsdp_error_context(fsdp_status status, const char *format, ...)
{
    if (status == FSDP_OK)
        return;
    char fresh[FSDP_ERROR_BYTES];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    if (used < 0)
        return;
    size_t at = (size_t)used < sizeof fresh ? (size_t)used : sizeof fresh - 1;
    for (const char *part = ": "; *part && at < sizeof fresh - 1; part++)
        fresh[at++] = *part;
    for (const char *old = message; *old && at < sizeof fresh - 1; old++)
        fresh[at++] = *old;
    fresh[at] = 0;
    memcpy(message, fresh, sizeof message);
}

void fsdp_error_save(fsdp_status status, fsdp_saved_error *error)
{
    error->status = status;
    memcpy(error->message, message, sizeof error->message);
}

fsdp_status fsdp_error_restore(const fsdp_saved_error *error)
{
    if (error->status != FSDP_OK)
        memcpy(message, error->message, sizeof message);
    return error->status;
}
