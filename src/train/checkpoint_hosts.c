/* See checkpoint_hosts.h. */
#include "src/train/checkpoint_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/crc32.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/dcp/block_sums.h"
#include "src/dcp/dcp_reader.h"
#include "src/train/checkpoint_folders.h"
#include "src/train/checkpoint_state.h"
#include "src/train/checkpoint_tie.h"

enum {
    REASON_OF_HOST = 300,
    MAX_SHOWN_PARTS = 8,
    MAX_STEPS = 1024 /* how many checkpoints of a host are examined, beginning with the newest */
};

/* What the first rank of a host reports about a checkpoint. All zero on other ranks. */
typedef struct report {
    int32_t is_host;
    int32_t is_usable; /* the folder has a model, an optimizer and, if needed, trainer_state.json */
    uint32_t state_crc, metadata_crc; /* checksums; 0: there is no such file */
    char reason[REASON_OF_HOST];      /* why the folder is not usable */
} report;

static bool leads_host(const fsdp_trainer *t)
{
    return fsdp_group_leads_host(t->group, fsdp_group_rank(t->group));
}

/* ---- what this host has ---------------------------------------------------------------------- */

/* Set *crc to the checksum of the file `name` in `dir`, or to 0 if `dir` has no such file. */
static fsdp_status checksum_of(const char *dir, const char *name, uint32_t *crc)
{
    fsdp_mapping map = {0};
    fsdp_crc32_table table;
    char *path = fsdp_path_join(dir, name);
    *crc = 0;
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (path && fsdp_path_is_file(path))
        status = fsdp_file_map(path, &map);
    if (map.bytes) {
        fsdp_crc32_init(&table);
        *crc = fsdp_crc32(&table, 0, map.data, map.bytes);
    }
    fsdp_file_unmap(&map);
    fsdp_free(path);
    return status;
}

/* Check that the other files in `dir` were written by the same save as its trainer_state.json. */
static fsdp_status check_save(const char *dir)
{
    fsdp_trainer_state_owner owner;
    fsdp_json *state;
    FSDP_TRY(fsdp_trainer_state_find(dir, &owner));
    if (owner.kind != FSDP_TRAINER_STATE_OWN)
        return FSDP_OK;
    FSDP_TRY(fsdp_trainer_state_open(dir, &state));
    fsdp_status status = fsdp_checkpoint_tie_check(fsdp_json_root(state), dir);
    fsdp_json_destroy(state);
    return status;
}

/* Return FSDP_OK if this host sees all files of a complete checkpoint in the folder `path`. Set the
 * checksums in *r. */
static fsdp_status examine(const char *path, report *r)
{
    if (!fsdp_path_is_directory(path))
        return fsdp_error(FSDP_ERR_NOT_FOUND, "has no folder %s", path);
    FSDP_TRY(checksum_of(path, FSDP_TRAINER_STATE, &r->state_crc));
    FSDP_TRY(checksum_of(path, ".metadata", &r->metadata_crc));
    if (!fsdp_checkpoint_is_complete(path))
        return fsdp_error(FSDP_ERR_NOT_FOUND, "has no %s in %s",
                          r->metadata_crc ? FSDP_TRAINER_STATE : ".metadata", path);
    return check_save(path);
}

static void fill_report(const fsdp_trainer *t, const char *path, report *r)
{
    *r = (report){.is_host = leads_host(t)};
    if (!r->is_host)
        return;
    r->is_usable = examine(path, r) == FSDP_OK;
    if (!r->is_usable)
        snprintf(r->reason, sizeof r->reason, "%s", fsdp_last_error());
}

/* Return true if `dir` has the data file `name`. If `is_own` is true (this program wrote the
 * checkpoint), also check that its checksums are for a file of this size. */
static bool has_part(const char *dir, const char *name, bool is_own)
{
    fsdp_mapping map = {0};
    fsdp_block_check *check = NULL;
    char *path = fsdp_path_join(dir, name);
    bool has = path && fsdp_path_is_file(path);
    if (has && is_own)
        has = fsdp_file_map(path, &map) == FSDP_OK &&
              fsdp_block_check_open(path, &map, &check) == FSDP_OK;
    fsdp_block_check_close(check);
    fsdp_file_unmap(&map);
    fsdp_free(path);
    return has;
}

/* ---- the files of ranks ---------------------------------------------------------------------- */

static size_t count_parts(const fsdp_dcp_reader *reader)
{
    size_t n = 0;
    while (fsdp_dcp_reader_file(reader, n))
        n++;
    return n;
}

/* Append to `text` the names of the files that no host has, each with the host on which it was
 * saved. */
static void list_missing(const char *path, const fsdp_dcp_reader *reader, const int32_t *has,
                         size_t n, fsdp_str *text)
{
    fsdp_json *state = NULL;
    size_t missing = 0;
    if (fsdp_trainer_state_open(path, &state) != FSDP_OK)
        state = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *name = fsdp_dcp_reader_file(reader, i), *host = "";
        if (has[i] || missing++ >= MAX_SHOWN_PARTS)
            continue;
        if (state && strncmp(name, "__", 2) == 0)
            host = fsdp_trainer_state_host_of(fsdp_json_root(state), strtoll(name + 2, NULL, 10));
        fsdp_str_printf(text, "%s%s", missing == 1 ? "no host has whole " : ", ", name);
        if (*host)
            fsdp_str_printf(text, " (saved on host %s)", host);
    }
    if (missing > MAX_SHOWN_PARTS)
        fsdp_str_printf(text, " and %zu more", missing - MAX_SHOWN_PARTS);
    fsdp_json_destroy(state);
}

/* Write to `text` the names of the files of ranks that no host has. `first` is a rank with a usable
 * folder. `is_like_it` is true if this rank leads a host and has a folder from the same save as the
 * folder of rank `first`. Collective. */
static fsdp_status survey_parts(const fsdp_trainer *t, const char *path, int first, bool is_like_it,
                                char text[FSDP_HOSTS_REASON])
{
    fsdp_dcp_reader *reader = NULL;
    fsdp_status mine = is_like_it ? fsdp_dcp_reader_open_metadata(path, &reader) : FSDP_OK;
    int64_t n = reader ? (int64_t)count_parts(reader) : 0;
    int32_t *has = NULL;
    fsdp_status status = fsdp_agree(t->group, mine);
    if (status == FSDP_OK)
        status = fsdp_broadcast(t->group, &n, sizeof n, first);
    if (status == FSDP_OK) {
        has = fsdp_calloc((size_t)n + 1, sizeof *has);
        const bool is_own = reader && fsdp_dcp_metadata_is_own(fsdp_dcp_reader_metadata(reader));
        for (int64_t i = 0; has && reader && i < n; i++)
            has[i] = has_part(path, fsdp_dcp_reader_file(reader, (size_t)i), is_own);
        status = fsdp_agree(t->group, has ? FSDP_OK : FSDP_ERR_NOMEM);
    }
    if (status == FSDP_OK)
        status = fsdp_all_reduce(t->group, has, (size_t)n, FSDP_DTYPE_I32, FSDP_REDUCE_MAX);
    if (status == FSDP_OK) {
        fsdp_str list = {0};
        if (fsdp_group_rank(t->group) == first)
            list_missing(path, reader, has, (size_t)n, &list);
        snprintf(text, FSDP_HOSTS_REASON, "%s", list.data ? list.data : "");
        /* An empty text would mean that no file is missing. If the text is empty for lack of
         * memory, return an error instead. */
        status = fsdp_agree(t->group, list.failed ? fsdp_error_nomem() : FSDP_OK);
        if (status == FSDP_OK)
            status = fsdp_broadcast(t->group, text, FSDP_HOSTS_REASON, first);
        fsdp_str_fini(&list);
    }
    fsdp_free(has);
    fsdp_dcp_reader_close(reader);
    return status;
}

/* ---- one checkpoint on all hosts ------------------------------------------------------------- */

static bool is_same_save(const report *a, const report *b)
{
    return a->is_usable && b->is_usable && a->state_crc == b->state_crc &&
           a->metadata_crc == b->metadata_crc;
}

/* Append to `text` each host on which the folder is missing, not usable or from another save, and
 * the reason. `first` is the index of the first usable report in `all`, or -1. */
static void list_hosts(const fsdp_trainer *t, const report *all, int first, fsdp_str *text)
{
    for (int r = 0; r < fsdp_group_world_size(t->group); r++) {
        const fsdp_host_text host = fsdp_group_host_text(t->group, r);
        if (!all[r].is_host || (first >= 0 && is_same_save(&all[r], &all[first])))
            continue;
        if (all[r].is_usable)
            fsdp_str_printf(text, "%s%s has another save there than %s", text->len ? "; " : "",
                            host.text, fsdp_group_host_text(t->group, first).text);
        else
            fsdp_str_printf(text, "%s%s%s %s", text->len ? "; " : "", host.text,
                            strncmp(all[r].reason, "has no ", 7) == 0 ? "" : ":", all[r].reason);
    }
}

static fsdp_status survey(const fsdp_trainer *t, const char *path, report *all,
                          char reason[FSDP_HOSTS_REASON])
{
    char parts[FSDP_HOSTS_REASON] = "";
    report own;
    int first = -1;
    fill_report(t, path, &own);
    FSDP_TRY(fsdp_all_gather(t->group, &own, sizeof own, all));
    for (int r = fsdp_group_world_size(t->group) - 1; r >= 0; r--)
        first = all[r].is_usable ? r : first;
    if (first >= 0 && all[first].metadata_crc)
        FSDP_TRY(survey_parts(t, path, first, is_same_save(&own, &all[first]), parts));
    fsdp_str text = {0};
    list_hosts(t, all, first, &text);
    if (*parts)
        fsdp_str_printf(&text, "%s%s", text.len ? "; " : "", parts);
    snprintf(reason, FSDP_HOSTS_REASON, "%s", text.data ? text.data : "");
    const fsdp_status status = text.failed ? fsdp_error_nomem() : FSDP_OK;
    fsdp_str_fini(&text);
    return fsdp_agree(t->group, status);
}

fsdp_status fsdp_checkpoint_hosts_survey(const fsdp_trainer *t, const char *path, bool *whole,
                                         char reason[FSDP_HOSTS_REASON])
{
    report *all = fsdp_calloc((size_t)fsdp_group_world_size(t->group), sizeof *all);
    fsdp_status status = fsdp_agree(t->group, all ? FSDP_OK : FSDP_ERR_NOMEM);
    if (status == FSDP_OK)
        status = survey(t, path, all, reason);
    *whole = status == FSDP_OK && !*reason;
    fsdp_free(all);
    return status;
}

/* ---- the checkpoints of a folder ------------------------------------------------------------- */

static int by_step_descending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Find the checkpoints in `folder` that are complete on at least one host. Set *steps [n] to their
 * steps, each once, in descending order. The caller owns *steps. Collective. */
static fsdp_status list_steps(const fsdp_trainer *t, const char *folder, int64_t **steps, size_t *n)
{
    const size_t ranks = (size_t)fsdp_group_world_size(t->group);
    int64_t *own = NULL, most;
    size_t n_own = 0;
    fsdp_status status =
        leads_host(t) ? fsdp_checkpoint_list_steps(folder, false, &own, &n_own) : FSDP_OK;
    most = (int64_t)(n_own < MAX_STEPS ? n_own : MAX_STEPS);
    status = fsdp_agree(t->group, status);
    if (status == FSDP_OK)
        status = fsdp_all_reduce(t->group, &most, 1, FSDP_DTYPE_I64, FSDP_REDUCE_MAX);
    int64_t *row = NULL, *all = NULL;
    if (status == FSDP_OK) {
        row = fsdp_calloc((size_t)most + 1, sizeof *row);
        all = fsdp_calloc(ranks * (size_t)most + 1, sizeof *all);
        for (size_t i = 0; row && i < (size_t)most; i++)
            row[i] = i < n_own ? own[n_own - 1 - i] : -1;
        status = fsdp_agree_gather(t->group, row && all ? FSDP_OK : FSDP_ERR_NOMEM, row,
                                   (size_t)most * sizeof *row, all);
    }
    fsdp_free(row);
    fsdp_free(own);
    if (status != FSDP_OK) {
        fsdp_free(all);
        return status;
    }
    const size_t count = ranks * (size_t)most;
    qsort(all, count, sizeof *all, by_step_descending);
    *n = 0;
    for (size_t i = 0; i < count && all[i] >= 0; i++)
        if (*n == 0 || all[i] != all[*n - 1])
            all[(*n)++] = all[i];
    *steps = all;
    return FSDP_OK;
}

/* The arguments of fsdp_checkpoint_hosts_newest() that its helpers need. */
typedef struct choosing {
    const fsdp_trainer *t;
    const char *folder, *other_than;
    bool prints;
    char *path, *previous, *reason;
} choosing;

/* Examine the checkpoint of `step`. If it is whole on all hosts, write its path to c->path, or to
 * c->previous if c->path is already set. Collective. */
static fsdp_status try_step(const choosing *c, int64_t step)
{
    char reason[FSDP_HOSTS_REASON];
    bool whole = false;
    char *path = fsdp_checkpoint_path_of_step(c->folder, step);
    fsdp_status status = fsdp_agree(c->t->group, path ? FSDP_OK : FSDP_ERR_NOMEM);
    const bool is_other =
        path && c->other_than && strcmp(fsdp_path_name(path), fsdp_path_name(c->other_than)) == 0;
    if (status == FSDP_OK && !is_other)
        status = fsdp_checkpoint_hosts_survey(c->t, path, &whole, reason);
    if (status == FSDP_OK && whole)
        snprintf(*c->path ? c->previous : c->path, PATH_MAX, "%s", path);
    if (status == FSDP_OK && !whole && !is_other && !*c->path) {
        if (!*c->reason)
            snprintf(c->reason, FSDP_HOSTS_REASON, "%s", reason);
        if (c->prints && c->t->out)
            fprintf(c->t->out, "%s is not whole and is skipped: %s\n", path, reason);
    }
    fsdp_free(path);
    return status;
}

fsdp_status fsdp_checkpoint_hosts_newest(const fsdp_trainer *t, const char *folder,
                                         const char *other_than, bool prints, char path[PATH_MAX],
                                         char previous[PATH_MAX], size_t *n_seen,
                                         char reason[FSDP_HOSTS_REASON])
{
    const choosing c = {t, folder, other_than, prints, path, previous, reason};
    int64_t *steps;
    *path = *previous = *reason = 0;
    FSDP_TRY(list_steps(t, folder, &steps, n_seen));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < *n_seen && status == FSDP_OK && !*previous; i++)
        status = try_step(&c, steps[i]);
    fsdp_free(steps);
    return status;
}
