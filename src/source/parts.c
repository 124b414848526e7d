/* See parts.h. */
#include "src/source/parts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/hf.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/hf/folder_kind.h"
#include "src/hf/rank_shards.h"

enum {
    MAX_DEPTH = 2 /* largest depth of subfolders to search; checkpoint-5/optimizer_0 has depth 2 */
};

bool fsdp_parts_is_dcp(const char *path)
{
    return fsdp_path_is_directory(path) && fsdp_directory_has_file(path, ".metadata");
}

bool fsdp_parts_is_model(const char *path)
{
    return fsdp_folder_has_weights(path);
}

static bool is_weights_file(const char *path)
{
    static const char *const ends[] = {".pt", ".pth", ".bin", ".safetensors"};
    for (size_t i = 0; i < FSDP_LENGTH(ends); i++)
        if (fsdp_ends_with(path, ends[i]))
            return fsdp_path_is_file(path);
    return false;
}

bool fsdp_parts_is_checkpoint_name(const char *name)
{
    static const char prefix[] = "checkpoint";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    name += sizeof prefix - 1;
    if ((*name != '-' && *name != '_') || !name[1])
        return false;
    return name[1 + strspn(name + 1, "0123456789")] == '\0';
}

/* Compare two names for qsort(). Numbers in the names are compared by value, so checkpoint-9 comes
 * before checkpoint-10. */
static int by_numbers(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    while (*x && *y) {
        if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
            size_t m = strspn(x, "0123456789"), n = strspn(y, "0123456789");
            int order = m == n ? strncmp(x, y, n) : m < n ? -1 : 1;
            if (order)
                return order;
            x += m;
            y += n;
        } else if (*x != *y) {
            break;
        } else {
            x++;
            y++;
        }
    }
    return (unsigned char)*x - (unsigned char)*y;
}

void fsdp_parts_sort(char **names, size_t n)
{
    if (n)
        qsort(names, n, sizeof *names, by_numbers);
}

fsdp_status fsdp_parts_add(fsdp_parts *parts, const char *path)
{
    if (!FSDP_GROW(parts->paths, parts->cap, parts->n + 1))
        return FSDP_ERR_NOMEM;
    parts->paths[parts->n] = fsdp_strdup(path);
    return parts->paths[parts->n] ? parts->n++, FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status find_in(const char *dir, int depth, fsdp_parts *parts);

/* Add `path` if it is a weights file or a directory of torch.distributed.checkpoint. If `path` is
 * neither, but is a folder named checkpoint-<n> or checkpoint_<n>, add the checkpoints in this
 * folder. There are two exceptions: if the folder is a Hugging Face model, or if no checkpoint is
 * found in it, add the folder itself. */
static fsdp_status find_at(const char *path, const char *name, int depth, fsdp_parts *parts)
{
    if (fsdp_atomic_directory_is_unfinished(name, NULL)) /* written by a run that was killed */
        return FSDP_OK;
    if (fsdp_parts_is_dcp(path) || is_weights_file(path))
        return fsdp_parts_add(parts, path);
    if (!fsdp_parts_is_checkpoint_name(name) || !fsdp_path_is_directory(path) || depth == MAX_DEPTH)
        return FSDP_OK;
    if (fsdp_parts_is_model(path))
        return fsdp_parts_add(parts, path);
    size_t before = parts->n;
    FSDP_TRY(find_in(path, depth, parts));
    return parts->n == before ? fsdp_parts_add(parts, path) : FSDP_OK;
}

static fsdp_status find_in(const char *dir, int depth, fsdp_parts *parts)
{
    char **names;
    size_t n;
    FSDP_TRY(fsdp_directory_list(dir, &names, &n));
    fsdp_status status = FSDP_OK;
    fsdp_parts_sort(names, n);
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        char *path = fsdp_path_join(dir, names[i]);
        status = path ? find_at(path, names[i], depth + 1, parts) : FSDP_ERR_NOMEM;
        fsdp_free(path);
    }
    fsdp_free(names);
    return status;
}

fsdp_status fsdp_parts_find(const char *path, fsdp_parts *parts)
{
    *parts = (fsdp_parts){0};
    if (fsdp_path_is_directory(path) && !fsdp_parts_is_dcp(path) && !fsdp_parts_is_model(path) &&
        !fsdp_shard_is_folder(path))
        FSDP_TRY(find_in(path, 0, parts));
    return parts->n ? FSDP_OK : fsdp_parts_add(parts, path);
}

void fsdp_parts_fini(fsdp_parts *parts)
{
    for (size_t i = 0; i < parts->n; i++)
        fsdp_free(parts->paths[i]);
    fsdp_free(parts->paths);
    *parts = (fsdp_parts){0};
}

bool fsdp_parts_is_path_itself(const fsdp_parts *parts, const char *path)
{
    return parts->n == 1 && strcmp(parts->paths[0], path) == 0;
}
