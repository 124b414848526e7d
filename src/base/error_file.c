/* See error_file.h. The name of the variable and the format of the file are those of torchrun:
 * {"message": {"message": ..., "extraInfo": ...}}. */
#include "src/base/error_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "src/base/alloc.h"
#include "src/base/shown_text.h"

/* If `fsdp launch` started this process, write `message` to the file for the launcher. Return false
 * if `fsdp launch` did not start this process, or if the file cannot be written. */
static bool write_for_launcher(const char *message)
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

bool fsdp_error_report(const char *program)
{
    char *shown = fsdp_show_lines(fsdp_last_error());
    char *message = shown ? fsdp_strdup_printf("%s: %s", program, shown) : NULL;
    const char *text = message ? message : fsdp_last_error();
    const bool printed = !write_for_launcher(text);
    if (printed)
        fprintf(stderr, "%s\n", text);
    fsdp_free(shown);
    fsdp_free(message);
    return printed;
}
