/* See disks.h. */
#include "src/dcp/disks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/io_internal.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"

enum {
    CONTENT_BYTES = 16,
    MAX_NAME = NAME_MAX + 1
};

/* A file that the first rank of a host has written, for the other hosts to look for. */
typedef struct signal_file {
    char name[MAX_NAME]; /* in the parent of the folder; "": none */
    unsigned char content[CONTENT_BYTES];
} signal_file;

typedef struct finding {
    fsdp_group *group;
    char *parent, *name; /* parent and name of the folder, which need not exist */
    signal_file own, *all;
    unsigned char *seen; /* [world_size * world_size] seen[r * world_size + q] is true if rank r,
                          * the first rank of its host, sees the file of rank q. It is false for
                          * the other ranks r, which do not look for files */
} finding;

/* ---- the files ------------------------------------------------------------------------------- */

static fsdp_status make_signal(finding *f)
{
    FSDP_TRY(fsdp_directory_make(f->parent));
    char *temporary = fsdp_atomic_directory_temporary(f->name);
    if (!temporary)
        return FSDP_ERR_NOMEM;
    const int bytes = snprintf(f->own.name, MAX_NAME, "%s", temporary);
    fsdp_free(temporary);
    if (bytes >= MAX_NAME)
        return fsdp_error(FSDP_ERR_INVALID, "%s: the name is too long", f->name);
    if (getrandom(f->own.content, CONTENT_BYTES, 0) != CONTENT_BYTES)
        return fsdp_io_error(f->name, "cannot get random bytes");
    char *path = fsdp_path_join(f->parent, f->own.name);
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    FILE *file = path ? fopen(path, "wxe") : NULL;
    if (path && !file)
        status = fsdp_io_error(path, "cannot write");
    if (file) {
        const bool written = fwrite(f->own.content, 1, CONTENT_BYTES, file) == CONTENT_BYTES;
        if (fclose(file) != 0 || !written)
            status = fsdp_io_error(path, "cannot write");
    }
    fsdp_free(path);
    return status;
}

static fsdp_status write_signal(finding *f)
{
    const fsdp_status status = make_signal(f);
    fsdp_error_context(status, "%s",
                       fsdp_group_host_text(f->group, fsdp_group_rank(f->group)).text);
    return status;
}

static void remove_signal(const finding *f)
{
    char *path = *f->own.name ? fsdp_path_join(f->parent, f->own.name) : NULL;
    if (path)
        (void)unlink(path);
    fsdp_free(path);
}

/* Set *seen to 1 if this rank reads the expected content from the file of another rank, else to
 * 0. */
static fsdp_status look_for(const finding *f, const signal_file *file, unsigned char *seen)
{
    unsigned char content[CONTENT_BYTES + 1];
    char *path = fsdp_path_join(f->parent, file->name);
    *seen = 0;
    if (!path)
        return FSDP_ERR_NOMEM;
    FILE *in = fopen(path, "re");
    fsdp_status status = FSDP_OK;
    if (in) {
        const size_t n = fread(content, 1, sizeof content, in);
        *seen = n == CONTENT_BYTES && memcmp(content, file->content, CONTENT_BYTES) == 0;
        fclose(in);
    } else if (errno != ENOENT && errno != ENOTDIR) {
        status = fsdp_io_error(path, "cannot read");
    }
    fsdp_free(path);
    return status;
}

/* Send the name of this rank's file, if any, to all ranks. The first rank of each host then looks
 * for the files of all ranks. Collective. */
static fsdp_status look_for_all(finding *f, fsdp_status mine)
{
    const int ranks = fsdp_group_world_size(f->group), rank = fsdp_group_rank(f->group);
    unsigned char *own = fsdp_calloc((size_t)ranks, 1);
    fsdp_status status = fsdp_agree_gather(
        f->group, mine == FSDP_OK && !own ? FSDP_ERR_NOMEM : mine, &f->own, sizeof f->own, f->all);
    if (status == FSDP_OK) {
        for (int r = 0; r < ranks && status == FSDP_OK; r++)
            if (*f->all[r].name && fsdp_group_leads_host(f->group, rank))
                status = look_for(f, &f->all[r], &own[r]);
        status = fsdp_agree_gather(f->group, status, own, (size_t)ranks, f->seen);
    }
    fsdp_free(own);
    return status;
}

/* ---- the folders ----------------------------------------------------------------------------- */

static int leader_of_host(const fsdp_group *group, int rank)
{
    int r = rank;
    while (!fsdp_group_leads_host(group, r))
        r--;
    return r;
}

/* Return true if the first ranks of all hosts see the file of rank 0. */
static bool all_see_the_first(const finding *f)
{
    const int ranks = fsdp_group_world_size(f->group);
    for (int r = 0; r < ranks; r++)
        if (fsdp_group_leads_host(f->group, r) && !f->seen[(size_t)r * (size_t)ranks])
            return false;
    return true;
}

static bool sees(const finding *f, int rank, int other)
{
    return f->seen[(size_t)rank * (size_t)fsdp_group_world_size(f->group) + (size_t)other];
}

/* Return an error unless rank `r` sees the files of exactly those hosts that share its disk. All
 * ranks have the same `seen`, so all return the same error. */
static fsdp_status check_alike(const finding *f, const fsdp_disks *disks, int r)
{
    for (int q = 0; q < fsdp_group_world_size(f->group); q++)
        if (*f->all[q].name && sees(f, r, q) != fsdp_disks_share(disks, r, q))
            return fsdp_error(FSDP_ERR_IO,
                              "%s: %s %s the new file of %s there, unlike other hosts that share "
                              "the folder with one of the two: their file system does not show new "
                              "files at once, so checkpoints cannot be saved on it",
                              f->parent, fsdp_group_host_text(f->group, r).text,
                              sees(f, r, q) ? "sees" : "does not see",
                              fsdp_group_host_text(f->group, q).text);
    return FSDP_OK;
}

static fsdp_status number_disks(const finding *f, fsdp_disks *disks)
{
    const int ranks = fsdp_group_world_size(f->group);
    disks->n = 0;
    disks->of_rank = fsdp_calloc((size_t)ranks, sizeof *disks->of_rank);
    disks->leaders = fsdp_calloc((size_t)ranks, sizeof *disks->leaders);
    if (!disks->of_rank || !disks->leaders)
        return FSDP_ERR_NOMEM;
    for (int r = 0; r < ranks; r++) {
        const int host = leader_of_host(f->group, r);
        int d = 0;
        while (d < disks->n && !sees(f, host, disks->leaders[d]))
            d++;
        if (d == disks->n)
            disks->leaders[disks->n++] = r;
        disks->of_rank[r] = d;
    }
    for (int r = 0; r < ranks; r++)
        if (fsdp_group_leads_host(f->group, r))
            FSDP_TRY(check_alike(f, disks, r));
    return FSDP_OK;
}

/* Find out which ranks share a disk. At first only rank 0 writes a file, because usually all hosts
 * see this file. */
static fsdp_status find(finding *f, fsdp_status mine, fsdp_disks *disks)
{
    const int rank = fsdp_group_rank(f->group);
    if (mine == FSDP_OK && rank == 0)
        mine = write_signal(f);
    FSDP_TRY(look_for_all(f, mine));
    if (all_see_the_first(f)) {
        disks->n = 1;
        return FSDP_OK;
    }
    fsdp_status status = FSDP_OK;
    if (rank != 0 && fsdp_group_leads_host(f->group, rank))
        status = write_signal(f);
    FSDP_TRY(look_for_all(f, status));
    return fsdp_agree(f->group, number_disks(f, disks));
}

static fsdp_status open_finding(finding *f, const char *path)
{
    const size_t ranks = (size_t)fsdp_group_world_size(f->group);
    char *stripped = fsdp_path_stripped(path);
    f->parent = stripped ? fsdp_path_parent(stripped) : NULL;
    f->name = stripped ? fsdp_strdup(fsdp_path_name(stripped)) : NULL;
    fsdp_free(stripped);
    f->all = fsdp_calloc(ranks, sizeof *f->all);
    f->seen = fsdp_calloc(ranks * ranks, 1);
    return f->parent && f->name && f->all && f->seen ? FSDP_OK : FSDP_ERR_NOMEM;
}

fsdp_status fsdp_disks_find(fsdp_status mine, const char *path, fsdp_group *group,
                            fsdp_disks *disks)
{
    finding f = {.group = group};
    *disks = (fsdp_disks){.n = 1};
    if (!fsdp_group_is_on_several_hosts(group))
        return mine;
    fsdp_status status = fsdp_agree(group, mine == FSDP_OK ? open_finding(&f, path) : mine);
    if (status == FSDP_OK)
        status = find(&f, FSDP_OK, disks);
    /* When find() returns FSDP_OK on any rank, the first ranks of all hosts have already looked for
     * the files, so this rank's file is no longer needed. */
    remove_signal(&f);
    fsdp_free(f.parent);
    fsdp_free(f.name);
    fsdp_free(f.all);
    fsdp_free(f.seen);
    if (status != FSDP_OK || disks->n == 1)
        fsdp_disks_fini(disks);
    return status;
}

void fsdp_disks_fini(fsdp_disks *disks)
{
    fsdp_free(disks->of_rank);
    fsdp_free(disks->leaders);
    *disks = (fsdp_disks){.n = 1};
}

bool fsdp_disks_leads(const fsdp_disks *disks, int rank)
{
    return disks->n > 1 ? disks->leaders[disks->of_rank[rank]] == rank : rank == 0;
}

bool fsdp_disks_share(const fsdp_disks *disks, int rank, int other)
{
    return disks->n <= 1 || disks->of_rank[rank] == disks->of_rank[other];
}

fsdp_status fsdp_disks_share_path(const fsdp_disks *disks, fsdp_group *group, char text[PATH_MAX])
{
    if (disks->n <= 1)
        return group ? fsdp_broadcast(group, text, PATH_MAX, 0) : FSDP_OK;
    const int rank = fsdp_group_rank(group);
    for (int d = 0; d < disks->n; d++) {
        char sent[PATH_MAX] = "";
        if (disks->leaders[d] == rank)
            snprintf(sent, sizeof sent, "%s", text);
        FSDP_TRY(fsdp_broadcast(group, sent, sizeof sent, disks->leaders[d]));
        if (disks->of_rank[rank] == d)
            snprintf(text, PATH_MAX, "%s", sent);
    }
    return FSDP_OK;
}
