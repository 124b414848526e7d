/* See program.h. */
#include "src/base/program.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/io.h"

bool fsdp_is_program(const char *path)
{
    return fsdp_path_is_file(path) && access(path, X_OK) == 0;
}

char *fsdp_program_find(const char *name)
{
    const char *path = getenv("PATH");
    for (path = path ? path : "/usr/bin:/bin"; *path; path += *path == ':') {
        const size_t length = strcspn(path, ":");
        char *candidate =
            fsdp_strdup_printf("%.*s%s%s", (int)length, path, length ? "/" : "./", name);
        if (!candidate || fsdp_is_program(candidate))
            return candidate;
        fsdp_free(candidate);
        path += length;
    }
    return NULL;
}
