/* See remote_files.h. */
#include "src/dcp/remote_files.h"

#include <sys/stat.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/error.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/dcp/block_sums.h"

enum {
    KINDS = 2
};

/* The sizes of a file and of its file of checksums; -1: this rank does not have it. */
typedef struct sizes {
    int64_t bytes[KINDS];
} sizes;

typedef enum wish {
    WISH_NONE, /* this rank has ended its session */
    WISH_BYTES,
    WISH_FAILED /* this rank has failed */
} wish;

/* What a rank sends to all ranks in a round. */
typedef struct request {
    int32_t wish, server, kind;
    uint32_t file, bytes;
    uint64_t offset;
} request;

/* A file that this rank sends to others. */
typedef struct served {
    fsdp_mapping maps[KINDS];
    bool is_mapped[KINDS];
} served;

struct fsdp_remote_files {
    fsdp_group *group;
    int rank, world_size;
    const char *const *names, *const *paths; /* [n] borrowed */
    size_t n;
    sizes *sizes;  /* [n] sizes of each file on the ranks that have it */
    int *servers;  /* [n] for each file, the rank that sends it to other ranks; -1: no rank has the
                    * file */
    int *n_having; /* [n] number of ranks that have the file */
    served *served;
    request *requests;  /* [world_size] */
    fsdp_piece *pieces; /* [world_size] */
    bool is_spread;
    bool given_up;           /* a rank has failed; there are no more rounds */
    fsdp_saved_error failed; /* error of this rank: it could not send what others had asked for, or
                              * a round failed */
};

/* ---- which rank has which file --------------------------------------------------------------- */

static int64_t size_of(const char *path)
{
    struct stat st;
    return path && stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
}

static fsdp_status measure(const fsdp_remote_files *f, sizes *own)
{
    for (size_t i = 0; i < f->n; i++) {
        own[i] = (sizes){{-1, -1}};
        if (!f->paths[i])
            continue;
        char *sums = fsdp_block_sums_path(f->paths[i]);
        if (!sums)
            return FSDP_ERR_NOMEM;
        own[i] = (sizes){{size_of(f->paths[i]), size_of(sums)}};
        fsdp_free(sums);
    }
    return FSDP_OK;
}

/* Choose the server of file `i`. The files are divided among the ranks that have them. */
static fsdp_status choose_server(fsdp_remote_files *f, size_t i, const sizes *all)
{
    int having = 0, first = -1;
    for (int r = 0; r < f->world_size; r++) {
        const sizes *s = &all[(size_t)r * f->n + i];
        if (s->bytes[FSDP_REMOTE_DATA] < 0)
            continue;
        const sizes *before = first < 0 ? s : &all[(size_t)first * f->n + i];
        for (int k = 0; k < KINDS; k++)
            if (s->bytes[k] != before->bytes[k])
                return fsdp_error(FSDP_ERR_FORMAT,
                                  "%s%s has %lld bytes on %s and %lld bytes on %s: at least one of "
                                  "them is damaged, or of another save",
                                  f->names[i], k == FSDP_REMOTE_SUMS ? " (its checksums)" : "",
                                  (long long)before->bytes[k],
                                  fsdp_group_host_text(f->group, first).text,
                                  (long long)s->bytes[k], fsdp_group_host_text(f->group, r).text);
        first = first < 0 ? r : first;
        f->sizes[i] = *s;
        having++;
    }
    f->n_having[i] = having;
    f->is_spread |= having < f->world_size;
    f->servers[i] = -1;
    for (int r = 0, k = 0; r < f->world_size && having; r++)
        if (all[(size_t)r * f->n + i].bytes[FSDP_REMOTE_DATA] >= 0 &&
            k++ == (int)(i % (size_t)having))
            f->servers[i] = r;
    return FSDP_OK;
}

static fsdp_status choose_servers(fsdp_remote_files *f, const sizes *all)
{
    for (size_t i = 0; i < f->n; i++)
        FSDP_TRY(choose_server(f, i, all));
    return FSDP_OK;
}

static fsdp_status exchange_sizes(fsdp_remote_files *f, fsdp_status mine)
{
    sizes *own = fsdp_calloc(f->n + 1, sizeof *own);
    sizes *all = fsdp_calloc((f->n + 1) * (size_t)f->world_size, sizeof *all);
    if (mine == FSDP_OK)
        mine = own && all ? measure(f, own) : FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_agree_gather(f->group, mine, own, f->n * sizeof *own, all);
    if (status == FSDP_OK)
        status = choose_servers(f, all);
    fsdp_free(all);
    fsdp_free(own);
    return status;
}

fsdp_status fsdp_remote_files_open(fsdp_status mine, const char *const *names,
                                   const char *const *paths, size_t n, fsdp_group *group,
                                   fsdp_remote_files **files)
{
    fsdp_remote_files *f = fsdp_calloc(1, sizeof *f);
    fsdp_status status = fsdp_agree(group, mine == FSDP_OK && !f ? FSDP_ERR_NOMEM : mine);
    if (status != FSDP_OK) {
        fsdp_free(f);
        return status;
    }
    *f = (fsdp_remote_files){.group = group,
                             .rank = fsdp_group_rank(group),
                             .world_size = fsdp_group_world_size(group),
                             .names = names,
                             .paths = paths,
                             .n = n};
    f->sizes = fsdp_calloc(n + 1, sizeof *f->sizes);
    f->servers = fsdp_calloc(n + 1, sizeof *f->servers);
    f->n_having = fsdp_calloc(n + 1, sizeof *f->n_having);
    f->served = fsdp_calloc(n + 1, sizeof *f->served);
    f->requests = fsdp_calloc((size_t)f->world_size, sizeof *f->requests);
    f->pieces = fsdp_calloc((size_t)f->world_size, sizeof *f->pieces);
    const bool made =
        f->sizes && f->servers && f->n_having && f->served && f->requests && f->pieces;
    status = exchange_sizes(f, made ? FSDP_OK : FSDP_ERR_NOMEM);
    if (status != FSDP_OK) {
        fsdp_remote_files_close(f);
        return status;
    }
    *files = f;
    return FSDP_OK;
}

void fsdp_remote_files_close(fsdp_remote_files *f)
{
    if (!f)
        return;
    for (size_t i = 0; f->served && i < f->n; i++)
        for (int k = 0; k < KINDS; k++)
            fsdp_file_unmap(&f->served[i].maps[k]);
    fsdp_free(f->sizes);
    fsdp_free(f->servers);
    fsdp_free(f->n_having);
    fsdp_free(f->served);
    fsdp_free(f->requests);
    fsdp_free(f->pieces);
    fsdp_free(f);
}

bool fsdp_remote_files_are_spread(const fsdp_remote_files *f)
{
    return f->is_spread;
}

int fsdp_remote_files_server(const fsdp_remote_files *f, size_t i)
{
    return f->servers[i];
}

bool fsdp_remote_files_all_have(const fsdp_remote_files *f, size_t i)
{
    return f->n_having[i] == f->world_size;
}

uint64_t fsdp_remote_files_bytes(const fsdp_remote_files *f, size_t i, fsdp_remote_kind kind)
{
    return f->sizes[i].bytes[kind] > 0 ? (uint64_t)f->sizes[i].bytes[kind] : 0;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static fsdp_status map_served(fsdp_remote_files *f, size_t i, int kind)
{
    served *s = &f->served[i];
    if (s->is_mapped[kind])
        return FSDP_OK;
    char *sums = kind == FSDP_REMOTE_SUMS ? fsdp_block_sums_path(f->paths[i]) : NULL;
    const char *path = kind == FSDP_REMOTE_SUMS ? sums : f->paths[i];
    fsdp_status status = path ? fsdp_file_map(path, &s->maps[kind]) : FSDP_ERR_NOMEM;
    s->is_mapped[kind] = status == FSDP_OK;
    fsdp_free(sums);
    return status;
}

static fsdp_status serve(fsdp_remote_files *f, int reader, fsdp_piece *piece)
{
    const request *q = &f->requests[reader];
    if (q->file >= f->n || q->kind < 0 || q->kind >= KINDS || !f->paths[q->file])
        return fsdp_error(FSDP_ERR_INVALID, "rank %d asked for file %u, which is not here", reader,
                          (unsigned)q->file);
    FSDP_TRY(map_served(f, q->file, q->kind));
    const fsdp_mapping *map = &f->served[q->file].maps[q->kind];
    if (q->bytes > FSDP_PIECE_BYTES || q->offset > map->bytes || q->bytes > map->bytes - q->offset)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: has %zu bytes: it was shortened", f->paths[q->file],
                          map->bytes);
    *piece = (fsdp_piece){.reader = reader, .data = map->data + q->offset, .bytes = q->bytes};
    return FSDP_OK;
}

/* Take part in a round with the request *own, whose bytes are read into `out`. Set *any to true if
 * any rank has asked for bytes, otherwise to false. */
static fsdp_status run_round(fsdp_remote_files *f, const request *own, void *out, bool *any)
{
    size_t n = 0;
    *any = false;
    FSDP_TRY(fsdp_all_gather(f->group, own, sizeof *own, f->requests));
    for (int r = 0; r < f->world_size; r++) {
        f->given_up |= f->requests[r].wish == WISH_FAILED;
        *any |= f->requests[r].wish == WISH_BYTES;
    }
    if (f->given_up || !*any)
        return FSDP_OK;
    for (int r = 0; r < f->world_size; r++) {
        if (f->requests[r].wish != WISH_BYTES || f->requests[r].server != f->rank)
            continue;
        const fsdp_status status = serve(f, r, &f->pieces[n]);
        if (status == FSDP_OK)
            n++;
        else if (f->failed.status == FSDP_OK)
            fsdp_error_save(status, &f->failed);
    }
    return fsdp_exchange_pieces(f->group, f->pieces, n, out,
                                own->wish == WISH_BYTES ? own->bytes : 0);
}

/* Run a round. If it fails, the group has failed, so set `given_up`: there are no more rounds. */
static fsdp_status try_round(fsdp_remote_files *f, const request *own, void *out, bool *any)
{
    const fsdp_status status = run_round(f, own, out, any);
    if (status != FSDP_OK) {
        fsdp_error_save(status, &f->failed);
        f->given_up = true;
    }
    return status;
}

static fsdp_status read_piece(fsdp_remote_files *f, const request *wanted, void *out)
{
    bool any;
    if (f->failed.status != FSDP_OK)
        return fsdp_error_restore(&f->failed);
    if (!f->given_up)
        FSDP_TRY(try_round(f, wanted, out, &any));
    return f->given_up ? fsdp_error(FSDP_ERR_STATE, "another rank has failed") : FSDP_OK;
}

fsdp_status fsdp_remote_files_read(fsdp_remote_files *f, size_t i, fsdp_remote_kind kind,
                                   uint64_t offset, void *out, size_t bytes)
{
    unsigned char *to = out;
    FSDP_ASSERT(i < f->n);
    FSDP_ASSERT(f->servers[i] >= 0);
    while (bytes > 0) {
        const size_t piece = bytes < FSDP_PIECE_BYTES ? bytes : FSDP_PIECE_BYTES;
        const request wanted = {.wish = WISH_BYTES,
                                .server = f->servers[i],
                                .kind = kind,
                                .file = (uint32_t)i,
                                .bytes = (uint32_t)piece,
                                .offset = offset};
        FSDP_TRY(read_piece(f, &wanted, to));
        to += piece;
        offset += piece;
        bytes -= piece;
    }
    return FSDP_OK;
}

fsdp_status fsdp_remote_files_end(fsdp_remote_files *f, fsdp_status status)
{
    fsdp_saved_error own = {.status = FSDP_OK};
    bool any = true;
    /* If another rank has already given up the session, `status` is not an error of this rank. */
    const bool is_own = status != FSDP_OK && !f->given_up;
    if (is_own)
        fsdp_error_save(status, &own);
    while (any && !f->given_up) {
        if (own.status == FSDP_OK && f->failed.status != FSDP_OK)
            own = f->failed;
        const request last = {.wish = own.status == FSDP_OK ? WISH_NONE : WISH_FAILED};
        if (try_round(f, &last, NULL, &any) != FSDP_OK)
            break;
    }
    if (own.status == FSDP_OK)
        own = f->failed;
    return fsdp_error_restore(&own);
}

bool fsdp_remote_files_given_up(const fsdp_remote_files *f)
{
    return f->given_up;
}
