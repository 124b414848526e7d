/* See board.h. */
#include "src/dashboard/board.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/dashboard/scan.h"

/* The reader holds the lock for about this long at a time. */
static const int64_t slice_ns = 8000000;
static const int64_t scan_every_ns = 1000000000; /* least time between two scans for new files */
static const int64_t scan_share = 50; /* after a scan that took t, scan again after at least 50 t */
static const int64_t look_every_ns = 60000000000; /* time until a checkpoint is checked again */
enum {
    PAUSE_MS = 400, /* pause of the reader when it has read all lines */
    /* Pause of the reader when lines are left, so that the server can get the lock. */
    SHORT_PAUSE_MS = 1,
    /* If the board has more checkpoints than this, it checks again only changed ones. */
    MAX_LOOKED = 50
};

struct fsdp_board {
    pthread_mutex_t lock;
    struct fsdp_board_content content;
    int64_t next_scan_ns; /* time of the next scan for new files (fsdp_clock_ns()) */
};

/* --- names --- */

/* Return the name of a run: its path without "metrics.jsonl" or ".jsonl" at the end. If the board
 * has several folders, the name of the folder comes first. The caller owns the name. */
static char *name_of_run(const struct fsdp_board_content *c, size_t dir, const char *path)
{
    size_t n = strlen(path);
    static const char file[] = "metrics.jsonl", ending[] = ".jsonl";
    if (fsdp_ends_with(path, file) && (n == strlen(file) || path[n - strlen(file) - 1] == '/'))
        n -= strlen(file);
    else if (fsdp_ends_with(path, ending))
        n -= strlen(ending);
    while (n && path[n - 1] == '/')
        n--;
    if (!n)
        return fsdp_strdup(c->dirs[dir].name);
    if (c->n_dirs > 1)
        return fsdp_strdup_printf("%s/%.*s", c->dirs[dir].name, (int)n, path);
    return fsdp_strdup_printf("%.*s", (int)n, path);
}

/* --- what a scan has found --- */

/* `found` is an item in the folder `dir` of the board. Return true if it is only another name of
 * the shown item with the path `other_path` in the folder `other_dir` and the inode `inode`. Then
 * it must not be shown again. If one item has names in several folders, the name in the first
 * folder is shown. So the result is false if `other_dir` comes after `dir`. */
static bool is_other_name(size_t dir, const fsdp_found *found, size_t other_dir,
                          const char *other_path, const fsdp_inode *inode)
{
    return inode->device == found->inode.device && inode->inode == found->inode.inode &&
           (other_dir < dir || (other_dir == dir && strcmp(other_path, found->path) != 0));
}

static bool is_shown(const struct fsdp_board_content *c, size_t dir, const fsdp_found *found)
{
    bool shown = false;
    for (size_t i = 0; i < c->n_runs && !shown; i++)
        shown = c->runs[i].seen && is_other_name(dir, found, c->runs[i].run->dir,
                                                 c->runs[i].run->tail.path, &c->runs[i].inode);
    for (size_t i = 0; i < c->n_checkpoints && !shown; i++) {
        const fsdp_board_checkpoint *p = &c->checkpoints[i];
        shown = p->seen && is_other_name(dir, found, p->dir, p->path, &p->inode);
    }
    for (size_t i = 0; i < c->n_logs && !shown; i++) {
        const fsdp_board_log *log = &c->logs[i];
        shown = log->seen && is_other_name(dir, found, log->dir, log->path, &log->inode);
    }
    return shown;
}

static fsdp_status keep_run(struct fsdp_board_content *c, size_t dir, const fsdp_found *found)
{
    for (size_t i = 0; i < c->n_runs; i++) {
        const fsdp_dashboard_run *run = c->runs[i].run;
        if (run->dir == dir && strcmp(run->tail.path, found->path) == 0) {
            c->runs[i].seen = true;
            c->runs[i].inode = found->inode;
            c->runs[i].run->events_bytes = found->bytes;
            /* Set changed_at only for event files. For a file of metrics,
             * fsdp_dashboard_run_read() sets it. */
            if (run->has_events)
                c->runs[i].run->changed_at = found->time;
            return FSDP_OK;
        }
    }
    const bool has_events = found->kind == FSDP_FOUND_EVENTS;
    fsdp_dashboard_run *run = NULL;
    char *name = name_of_run(c, dir, found->path);
    fsdp_status status =
        name && FSDP_GROW(c->runs, c->cap_runs, c->n_runs + 1) ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_dashboard_run_create(dir, found->path, has_events, name, &run);
    fsdp_free(name);
    FSDP_TRY(status);
    run->id = ++c->next_id;
    run->changed_at = found->time;
    run->events_bytes = found->bytes;
    c->runs[c->n_runs++] =
        (fsdp_board_run){.run = run, .inode = found->inode, .stamp = ++c->revision, .seen = true};
    return FSDP_OK;
}

static fsdp_status keep_checkpoint(struct fsdp_board_content *c, size_t dir,
                                   const fsdp_found *found)
{
    for (size_t i = 0; i < c->n_checkpoints; i++) {
        fsdp_board_checkpoint *p = &c->checkpoints[i];
        if (p->dir == dir && strcmp(p->path, found->path) == 0) {
            if (p->time < found->time || p->time > found->time)
                p->looked_ns = 0;
            p->time = found->time;
            p->inode = found->inode;
            p->seen = true;
            return FSDP_OK;
        }
    }
    if (c->n_checkpoints == FSDP_BOARD_OTHERS) {
        c->dirs[dir].cut = true;
        return FSDP_OK;
    }
    char *path = fsdp_strdup(found->path);
    if (!path || !FSDP_GROW(c->checkpoints, c->cap_checkpoints, c->n_checkpoints + 1)) {
        fsdp_free(path);
        return FSDP_ERR_NOMEM;
    }
    c->checkpoints[c->n_checkpoints++] = (fsdp_board_checkpoint){
        .dir = dir, .inode = found->inode, .path = path, .time = found->time, .seen = true};
    return FSDP_OK;
}

static fsdp_status keep_log(struct fsdp_board_content *c, size_t dir, const fsdp_found *found)
{
    for (size_t i = 0; i < c->n_logs; i++) {
        fsdp_board_log *log = &c->logs[i];
        if (log->dir == dir && strcmp(log->path, found->path) == 0) {
            log->bytes = found->bytes;
            log->time = found->time;
            log->inode = found->inode;
            log->seen = true;
            return FSDP_OK;
        }
    }
    if (c->n_logs == FSDP_BOARD_OTHERS) {
        c->dirs[dir].cut = true;
        return FSDP_OK;
    }
    char *path = fsdp_strdup(found->path);
    if (!path || !FSDP_GROW(c->logs, c->cap_logs, c->n_logs + 1)) {
        fsdp_free(path);
        return FSDP_ERR_NOMEM;
    }
    c->logs[c->n_logs++] = (fsdp_board_log){.id = ++c->next_id,
                                            .dir = dir,
                                            .inode = found->inode,
                                            .path = path,
                                            .bytes = found->bytes,
                                            .time = found->time,
                                            .seen = true};
    return FSDP_OK;
}

static int compare_times(const void *a, const void *b)
{
    const fsdp_found *x = *(const fsdp_found *const *)a, *y = *(const fsdp_found *const *)b;
    return (x->time < y->time) - (x->time > y->time);
}

static bool is_run(const fsdp_found *found)
{
    return found->kind == FSDP_FOUND_RUN || found->kind == FSDP_FOUND_EVENTS;
}

/* Keep the runs in `scan`, in the order of their paths. If there are too many, keep only those that
 * changed last. */
static fsdp_status keep_runs(struct fsdp_board_content *c, size_t dir, const fsdp_scan *scan)
{
    const fsdp_found **newest = fsdp_calloc(scan->n + 1, sizeof *newest);
    size_t n = 0, others = 0;
    if (!newest)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < scan->n; i++)
        if (is_run(&scan->items[i]) && !is_shown(c, dir, &scan->items[i]))
            newest[n++] = &scan->items[i];
    for (size_t i = 0; i < c->n_runs; i++)
        others += c->runs[i].run->dir != dir;
    const size_t room = others < FSDP_BOARD_RUNS ? FSDP_BOARD_RUNS - others : 0;
    double oldest = 0;
    if (n > room) {
        qsort(newest, n, sizeof *newest, compare_times);
        oldest = room ? newest[room - 1]->time : (double)INFINITY;
        c->dirs[dir].cut = true;
    }
    fsdp_free(newest);
    size_t kept = 0;
    for (size_t i = 0; i < scan->n; i++)
        if (is_run(&scan->items[i]) && scan->items[i].time >= oldest && kept < room &&
            !is_shown(c, dir, &scan->items[i])) {
            FSDP_TRY(keep_run(c, dir, &scan->items[i]));
            kept++;
        }
    return FSDP_OK;
}

static void forget_seen(struct fsdp_board_content *c, size_t dir)
{
    for (size_t i = 0; i < c->n_runs; i++)
        c->runs[i].seen &= c->runs[i].run->dir != dir;
    for (size_t i = 0; i < c->n_checkpoints; i++)
        c->checkpoints[i].seen &= c->checkpoints[i].dir != dir;
    for (size_t i = 0; i < c->n_logs; i++)
        c->logs[i].seen &= c->logs[i].dir != dir;
}

static void remove_unseen(struct fsdp_board_content *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_runs; i++) {
        if (c->runs[i].seen) {
            c->runs[n++] = c->runs[i];
        } else {
            fsdp_dashboard_run_destroy(c->runs[i].run);
            c->revision++;
        }
    }
    c->n_runs = n;
    n = 0;
    for (size_t i = 0; i < c->n_checkpoints; i++) {
        if (c->checkpoints[i].seen)
            c->checkpoints[n++] = c->checkpoints[i];
        else
            fsdp_free(c->checkpoints[i].path);
    }
    c->n_checkpoints = n;
    n = 0;
    for (size_t i = 0; i < c->n_logs; i++) {
        if (c->logs[i].seen)
            c->logs[n++] = c->logs[i];
        else
            fsdp_free(c->logs[i].path);
    }
    c->n_logs = n;
}

static fsdp_status keep_found(struct fsdp_board_content *c, size_t dir, const fsdp_scan *scan)
{
    forget_seen(c, dir);
    c->dirs[dir].cut = scan->cut;
    FSDP_TRY(keep_runs(c, dir, scan));
    for (size_t i = 0; i < scan->n; i++) {
        const fsdp_found *found = &scan->items[i];
        if (is_run(found) || is_shown(c, dir, found))
            continue;
        if (found->kind == FSDP_FOUND_CHECKPOINT)
            FSDP_TRY(keep_checkpoint(c, dir, found));
        else
            FSDP_TRY(keep_log(c, dir, found));
    }
    return FSDP_OK;
}

/* --- finding and reading files (in the reader's thread) --- */

/* Scan a folder of the board. Open the folder again first, because another folder may have the same
 * path now. */
static fsdp_status scan_dir(fsdp_board *b, size_t dir)
{
    fsdp_scan scan = {0};
    const int fd = open(b->content.dirs[dir].path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fsdp_status status = fd >= 0 ? fsdp_scan_folder(fd, &scan) : FSDP_OK;
    pthread_mutex_lock(&b->lock);
    if (b->content.dirs[dir].fd >= 0)
        close(b->content.dirs[dir].fd);
    b->content.dirs[dir].fd = fd;
    if (status == FSDP_OK)
        status = keep_found(&b->content, dir, &scan);
    pthread_mutex_unlock(&b->lock);
    fsdp_scan_fini(&scan);
    return status;
}

static fsdp_status look_at_runs(fsdp_board *b)
{
    fsdp_status status = FSDP_OK;
    pthread_mutex_lock(&b->lock);
    struct fsdp_board_content *c = &b->content;
    remove_unseen(c);
    for (size_t i = 0; i < c->n_runs && status == FSDP_OK; i++) {
        fsdp_dashboard_run *run = c->runs[i].run;
        const int64_t before = run->revision;
        if (c->dirs[run->dir].fd >= 0)
            status = fsdp_dashboard_run_look(run, c->dirs[run->dir].fd);
        if (run->revision != before)
            c->runs[i].stamp = ++c->revision;
    }
    pthread_mutex_unlock(&b->lock);
    return status;
}

/* If the event files of a run have changed in size, read all of them again from the beginning. */
static fsdp_status read_events(fsdp_board *b, fsdp_board_run *r)
{
    fsdp_dashboard_run *run = r->run;
    const int root = b->content.dirs[run->dir].fd;
    fsdp_metrics_curves curves;
    if (!run->has_events || run->read_bytes == run->events_bytes || root < 0)
        return FSDP_OK;
    FSDP_TRY(fsdp_dashboard_read_events(root, run->tail.path, &curves));
    pthread_mutex_lock(&b->lock);
    const fsdp_status status = fsdp_dashboard_run_set(run, &curves);
    run->read_bytes = run->events_bytes;
    r->stamp = ++b->content.revision;
    pthread_mutex_unlock(&b->lock);
    fsdp_metrics_curves_fini(&curves);
    return status;
}

static fsdp_status scan_all(fsdp_board *b)
{
    const int64_t now = fsdp_clock_ns();
    if (now < b->next_scan_ns)
        return FSDP_OK;
    for (size_t dir = 0; dir < b->content.n_dirs; dir++)
        FSDP_TRY(scan_dir(b, dir));
    fsdp_status status = look_at_runs(b);
    for (size_t i = 0; i < b->content.n_runs && status == FSDP_OK; i++)
        status = read_events(b, &b->content.runs[i]);
    const int64_t end = fsdp_clock_ns(), pause = (end - now) * scan_share;
    b->next_scan_ns = end + (pause > scan_every_ns ? pause : scan_every_ns);
    return status;
}

/* Read new lines of all runs. Each run gets an equal part of the time slice_ns, so that a long file
 * does not delay the other runs. Set *more to true if lines are left. */
static fsdp_status read_runs(fsdp_board *b, bool *more)
{
    fsdp_status status = FSDP_OK;
    pthread_mutex_lock(&b->lock);
    struct fsdp_board_content *c = &b->content;
    const int64_t share_ns = slice_ns / (int64_t)(c->n_runs ? c->n_runs : 1);
    *more = false;
    for (size_t i = 0; i < c->n_runs && status == FSDP_OK; i++) {
        fsdp_dashboard_run *run = c->runs[i].run;
        const int64_t before = run->revision;
        bool rest = false;
        if (c->dirs[run->dir].fd >= 0)
            status = fsdp_dashboard_run_read(run, c->dirs[run->dir].fd, fsdp_clock_ns() + share_ns,
                                             &rest);
        if (run->revision != before)
            c->runs[i].stamp = ++c->revision;
        *more |= rest;
    }
    pthread_mutex_unlock(&b->lock);
    return status;
}

/* Set *index to a checkpoint that should be checked now, and *root to a new descriptor of the
 * board's folder that contains it. Return false if there is none. */
static bool choose_checkpoint(fsdp_board *b, size_t *index, int *root)
{
    const struct fsdp_board_content *c = &b->content;
    const int64_t now = fsdp_clock_ns();
    for (size_t i = 0; i < c->n_checkpoints; i++) {
        const fsdp_board_checkpoint *p = &c->checkpoints[i];
        const bool old = now - p->looked_ns > look_every_ns && c->n_checkpoints <= MAX_LOOKED;
        if ((!p->looked_ns || old) && c->dirs[p->dir].fd >= 0) {
            *index = i;
            *root = fcntl(c->dirs[p->dir].fd, F_DUPFD_CLOEXEC, 0);
            return *root >= 0;
        }
    }
    return false;
}

/* Check the checkpoint that is due next. Set *any to false if none is due. Only this thread changes
 * the list of checkpoints, so `index` stays valid without the lock. */
static fsdp_status look_at_a_checkpoint(fsdp_board *b, bool *any)
{
    size_t index;
    int root;
    fsdp_checkpoint_look look;
    *any = choose_checkpoint(b, &index, &root);
    if (!*any)
        return FSDP_OK;
    fsdp_board_checkpoint *p = &b->content.checkpoints[index];
    const fsdp_status status =
        fsdp_checkpoint_look_at(root, b->content.dirs[p->dir].path, p->path, &look);
    close(root);
    pthread_mutex_lock(&b->lock);
    p->looked_ns = fsdp_clock_ns();
    if (status == FSDP_OK)
        p->look = look;
    pthread_mutex_unlock(&b->lock);
    return status == FSDP_ERR_NOMEM ? status : FSDP_OK;
}

fsdp_status fsdp_board_turn(fsdp_board *board, int *pause_ms)
{
    bool more, looked = false;
    FSDP_TRY(scan_all(board));
    FSDP_TRY(read_runs(board, &more));
    if (!more)
        FSDP_TRY(look_at_a_checkpoint(board, &looked));
    *pause_ms = more || looked ? SHORT_PAUSE_MS : PAUSE_MS;
    return FSDP_OK;
}

/* --- the board --- */

static fsdp_status add_dir(struct fsdp_board_content *c, const char *path, bool may_come)
{
    fsdp_board_dir *dir = &c->dirs[c->n_dirs];
    char *stripped = fsdp_path_stripped(path);
    char *whole = realpath(path, NULL); /* The name of the folder is the last part of this path.
                                           For a folder such as ".", `path` does not contain the
                                           name. */
    const char *name = whole ? fsdp_path_name(whole) : "";
    *dir = (fsdp_board_dir){.path = stripped, .name = fsdp_strdup(*name ? name : path), .fd = -1};
    free(whole);
    c->n_dirs++;
    if (!dir->path || !dir->name)
        return FSDP_ERR_NOMEM;
    dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->fd >= 0 || (may_come && errno == ENOENT))
        return FSDP_OK;
    if (errno == ENOTDIR)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: is a file; name the folder that has it, or the --output or "
                          "--logging-dir of runs",
                          path);
    return fsdp_error(errno == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "%s: %s", path,
                      strerror(errno));
}

fsdp_status fsdp_board_create(const char *const *paths, size_t n, bool may_come, fsdp_board **board)
{
    fsdp_board *b = fsdp_calloc(1, sizeof *b);
    if (!b)
        return FSDP_ERR_NOMEM;
    pthread_mutex_init(&b->lock, NULL);
    b->content.dirs = fsdp_calloc(n ? n : 1, sizeof *b->content.dirs);
    fsdp_status status = b->content.dirs ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n && status == FSDP_OK; i++)
        status = add_dir(&b->content, paths[i], may_come);
    if (status == FSDP_OK)
        *board = b;
    else
        fsdp_board_destroy(b);
    return status;
}

void fsdp_board_destroy(fsdp_board *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->content.n_dirs; i++)
        forget_seen(&b->content, i);
    remove_unseen(&b->content);
    for (size_t i = 0; i < b->content.n_dirs; i++) {
        fsdp_board_dir *dir = &b->content.dirs[i];
        if (dir->fd >= 0)
            close(dir->fd);
        fsdp_free(dir->path);
        fsdp_free(dir->name);
    }
    fsdp_free(b->content.dirs);
    fsdp_free(b->content.runs);
    fsdp_free(b->content.checkpoints);
    fsdp_free(b->content.logs);
    pthread_mutex_destroy(&b->lock);
    fsdp_free(b);
}

const struct fsdp_board_content *fsdp_board_lock(fsdp_board *board)
{
    pthread_mutex_lock(&board->lock);
    return &board->content;
}

void fsdp_board_unlock(fsdp_board *board)
{
    pthread_mutex_unlock(&board->lock);
}
