/* See checkpoints.h. */
#include "src/dashboard/checkpoints.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/dashboard/beneath.h"
#include "src/source/source.h"
#include "src/train/checkpoint_folders.h"
#include "src/train/checkpoint_verify.h"

enum {
    MAX_DEPTH = 3 /* count files down to this depth; Accelerate's checkpoints have subfolders */
};

/* Add the number and the sizes of the files in the folder `dir` and below it to *look. Close `dir`.
 * Return false if there is anything else, such as a symbolic link, or a pipe, on which a reader
 * would wait. */
static bool count_files(int dir, int depth, fsdp_checkpoint_look *look)
{
    DIR *entries = fdopendir(dir);
    bool good = true;
    if (!entries) {
        close(dir);
        return true;
    }
    for (struct dirent *e; good && (e = readdir(entries));) {
        struct stat st;
        int below;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            fstatat(dirfd(entries), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        good = S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
        if (S_ISREG(st.st_mode)) {
            look->files++;
            look->bytes += st.st_size;
        } else if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH &&
                   fsdp_beneath_open_folder(dirfd(entries), e->d_name, &below)) {
            good = count_files(below, depth + 1, look);
        }
    }
    closedir(entries);
    return good;
}

static void take_damage(const char *damage, void *context)
{
    fsdp_checkpoint_look *look = context;
    if (look->verdict == FSDP_CHECKPOINT_DAMAGED)
        return;
    look->verdict = FSDP_CHECKPOINT_DAMAGED;
    snprintf(look->message, sizeof look->message, "%s", damage);
}

/* Open the checkpoint. fsdp_source_open() compares its index with the sizes of its files. Record
 * damage in *look. Ignore other errors: checkpoints of other programs may be good, even if
 * fsdp_source_open() does not support their form. */
static fsdp_status open_source(const char *path, fsdp_checkpoint_look *look)
{
    fsdp_source *source;
    const fsdp_status status = fsdp_source_open(path, &source);
    if (status == FSDP_OK)
        fsdp_source_close(source);
    else if (status == FSDP_ERR_FORMAT || status == FSDP_ERR_IO)
        take_damage(fsdp_last_error(), look);
    return status == FSDP_ERR_NOMEM ? status : FSDP_OK;
}

static fsdp_status look_at_path(const char *path, fsdp_checkpoint_look *look)
{
    size_t damages = 0;
    if (!fsdp_checkpoint_is_complete(path)) {
        look->verdict = FSDP_CHECKPOINT_INCOMPLETE;
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_checkpoint_folder_verify(path, take_damage, look, &damages));
    if (look->verdict != FSDP_CHECKPOINT_DAMAGED)
        FSDP_TRY(open_source(path, look));
    if (look->verdict != FSDP_CHECKPOINT_DAMAGED)
        look->verdict = FSDP_CHECKPOINT_GOOD;
    return FSDP_OK;
}

fsdp_status fsdp_checkpoint_look_at(int root, const char *root_path, const char *relative,
                                    fsdp_checkpoint_look *look)
{
    int dir;
    *look = (fsdp_checkpoint_look){.verdict = FSDP_CHECKPOINT_INCOMPLETE};
    if (!fsdp_beneath_open_folder(root, relative, &dir))
        return FSDP_OK;
    if (!count_files(dir, 0, look)) {
        look->verdict = FSDP_CHECKPOINT_LINKED;
        return FSDP_OK;
    }
    char *path = fsdp_path_join(root_path, relative);
    const fsdp_status status = path ? look_at_path(path, look) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}
