/* See error_file.h. The name of the variable and the format of the file are those of torchrun:
 * {"message": {"message": ..., "extraInfo": ...}}. */
#include "src/base/error_file.h"

#include <jansson.h>
#include <stdlib.h>
#include <time.h>

bool fsdp_error_file_write(const char *message)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    if (!path || !*path || !getenv("FSDP_LAUNCHER_PID"))
        return false;
    json_t *root = json_pack("{s{sss{ss,sI}}}", "message", "message", message, "extraInfo",
                             "py_callstack", "", "timestamp", (json_int_t)time(NULL));
    if (!root)
        return false;
    const bool written = json_dump_file(root, path, JSON_COMPACT) == 0;
    json_decref(root);
    return written;
}
