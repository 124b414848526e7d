/* See apart.h. */
#include "src/checkpoint_tools/apart.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"

/* Return true if `path` is `folder` or is inside it. Both are results of fsdp_path_resolve(). */
static bool is_within(const char *path, const char *folder)
{
    const size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (!path[n] || path[n] == '/' || folder[n - 1] == '/');
}

/* Set *within if `path` is `folder` or is inside it, and *around if `folder` is `path` or is inside
 * it. */
static fsdp_status compare_places(const char *path, const char *folder, bool *within, bool *around)
{
    char *a = NULL, *b = NULL;
    fsdp_status status = fsdp_path_resolve(path, &a);
    if (status == FSDP_OK)
        status = fsdp_path_resolve(folder, &b);
    if (status == FSDP_OK) {
        *within = is_within(a, b);
        *around = is_within(b, a);
    }
    fsdp_free(a);
    fsdp_free(b);
    return status;
}

static fsdp_status check(const char *to, const char *from, const char *verb, bool may_be_within)
{
    bool within, around;
    FSDP_TRY(compare_places(to, from, &within, &around));
    if (around)
        return fsdp_error(FSDP_ERR_INVALID, "%s: it is, or holds, what is %s: %s", to, verb, from);
    if (within && !may_be_within && fsdp_path_exists(to))
        return fsdp_error(FSDP_ERR_INVALID, "%s: it is a part of what is %s: %s", to, verb, from);
    return FSDP_OK;
}

fsdp_status fsdp_check_not_replaced(const char *to, const char *from, const char *verb)
{
    return check(to, from, verb, true);
}

fsdp_status fsdp_check_apart(const char *to, const char *from, const char *verb)
{
    return check(to, from, verb, false);
}

fsdp_status fsdp_check_two_folders(const char *a, const char *b, const char *names)
{
    bool within, around;
    FSDP_TRY(compare_places(a, b, &within, &around));
    if (!within && !around)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_INVALID, "%s: %s need two folders%s%s", a, names,
        within && around ? "" : ", of which none is inside the other: ", within && around ? "" : b);
}
