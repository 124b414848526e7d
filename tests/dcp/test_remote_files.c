/* Files that are in the folder of one rank only, and that other ranks read through the group. Ranks
 * are threads, and each has paths of its own. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/dcp/block_sums.h"
#include "src/dcp/remote_blocks.h"
#include "tests/dcp/dcp_case.h"

enum {
    RANKS = 3,
    FILES = 4, /* file i is in the folder of rank i; the last one is in all folders */
    BYTES = 3 * FSDP_PIECE_BYTES + 1234,
    SCRAMBLE = 7919
};

static const char *const names[FILES] = {"__0_0.distcp", "__1_0.distcp", "__2_0.distcp",
                                         "__3_0.distcp"};
static unsigned char content[FILES][BYTES];

/* What the ranks of a test do, and where the folders are. */
typedef struct job {
    fsdp_test *t;
    char paths[RANKS][FILES][400]; /* "": the rank does not have the file */
    fsdp_status status[RANKS];
    char message[RANKS][1024];
} job;

static void write_file(fsdp_test *t, const char *path, const unsigned char *data, size_t bytes)
{
    fsdp_block_sums sums;
    ASSERT_OK(fsdp_file_write(path, data, bytes));
    fsdp_block_sums_init(&sums);
    ASSERT_OK(fsdp_block_sums_add(&sums, data, bytes));
    ASSERT_OK(fsdp_block_sums_write(&sums, path));
    fsdp_block_sums_fini(&sums);
}

static void make_files(fsdp_test *t, job *j)
{
    *j = (job){.t = t};
    for (int i = 0; i < FILES; i++)
        for (size_t k = 0; k < BYTES; k++)
            content[i][k] = (unsigned char)(k * (size_t)(2 * i + 3) + k / 1000 + (size_t)i);
    for (int r = 0; r < RANKS; r++) {
        char name[32], dir[300];
        snprintf(name, sizeof name, "disk%d", r);
        ASSERT_OK(dcp_case_path(t, name, dir));
        ASSERT_OK(fsdp_directory_make(dir));
        for (int i = 0; i < FILES; i++) {
            if (i != r && i != FILES - 1)
                continue;
            snprintf(j->paths[r][i], sizeof j->paths[r][i], "%s/%s", dir, names[i]);
            write_file(t, j->paths[r][i], content[i], BYTES);
            CHECK_HERE();
        }
    }
}

static fsdp_status open_files(const job *j, fsdp_group *group, const char *paths[FILES],
                              fsdp_remote_files **files)
{
    const int rank = fsdp_group_rank(group);
    for (int i = 0; i < FILES; i++)
        paths[i] = *j->paths[rank][i] ? j->paths[rank][i] : NULL;
    return fsdp_remote_files_open(FSDP_OK, names, paths, FILES, group, files);
}

static fsdp_status compare(const unsigned char *got, int file, size_t offset, size_t bytes)
{
    if (memcmp(got, content[file] + offset, bytes) == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT, "other bytes of file %d at %zu", file, offset);
}

/* Each rank reads other ranges, of other files and in other orders, and another number of them. */
static fsdp_status read_ranges(fsdp_remote_files *f, int rank)
{
    static const size_t ranges[][2] = {{0, 1},     {FSDP_PIECE_BYTES - 3, 7},
                                       {0, BYTES}, {BYTES - 1, 1},
                                       {17, 0},    {FSDP_PIECE_BYTES, 2 * FSDP_PIECE_BYTES}};
    unsigned char *got = fsdp_calloc(BYTES, 1);
    fsdp_status status = got ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges * (size_t)rank && status == FSDP_OK;
         i++) {
        const size_t *range = ranges[(i * 5 + (size_t)rank) % (sizeof ranges / sizeof *ranges)];
        const int file = (int)((i + (size_t)rank) % FILES);
        status = fsdp_remote_files_read(f, (size_t)file, FSDP_REMOTE_DATA, range[0], got, range[1]);
        if (status == FSDP_OK)
            status = compare(got, file, range[0], range[1]);
    }
    fsdp_free(got);
    return status;
}

static fsdp_status read_in_two_sessions(fsdp_group *group, void *arg)
{
    const job *j = arg;
    const char *paths[FILES];
    fsdp_remote_files *f;
    FSDP_TRY(open_files(j, group, paths, &f));
    fsdp_status status = FSDP_OK;
    for (int session = 0; session < 2 && status == FSDP_OK; session++) {
        const int kind = (fsdp_group_rank(group) + session) % RANKS;
        status = fsdp_agree(group, fsdp_remote_files_end(f, read_ranges(f, kind)));
    }
    if (status == FSDP_OK &&
        (!fsdp_remote_files_are_spread(f) || fsdp_remote_files_all_have(f, 0) ||
         !fsdp_remote_files_all_have(f, FILES - 1) || fsdp_remote_files_server(f, 1) != 1 ||
         fsdp_remote_files_bytes(f, 2, FSDP_REMOTE_DATA) != BYTES))
        status = fsdp_error(FSDP_ERR_STATE, "wrong description of the files");
    fsdp_remote_files_close(f);
    return status;
}

TEST(ranks_read_files_of_other_ranks)
{
    static job j;
    make_files(t, &j);
    CHECK_HERE();
    ASSERT_OK(fsdp_run_ranks(RANKS, read_in_two_sessions, &j, NULL));
}

/* Rank 1 fails in its session. The others read, and end their sessions without an error of their
 * own. Later sessions end at once. */
static fsdp_status fail_on_rank_1(fsdp_group *group, void *arg)
{
    job *j = arg;
    const int rank = fsdp_group_rank(group);
    const char *paths[FILES];
    fsdp_remote_files *f;
    FSDP_TRY(open_files(j, group, paths, &f));
    const fsdp_status mine =
        rank == 1 ? fsdp_error(FSDP_ERR_IO, "disk 1 is on fire") : read_ranges(f, 2);
    const fsdp_status ended = fsdp_remote_files_end(f, mine);
    const bool given_up = fsdp_remote_files_given_up(f);
    const fsdp_status again = rank == 1 ? FSDP_OK : fsdp_remote_files_end(f, FSDP_OK);
    j->status[rank] = fsdp_agree(group, ended);
    snprintf(j->message[rank], sizeof j->message[rank], "%s", fsdp_last_error());
    fsdp_remote_files_close(f);
    const bool right = given_up && again == FSDP_OK && (ended != FSDP_OK) == (rank == 1);
    return right ? FSDP_OK : fsdp_error(FSDP_ERR_STATE, "rank %d: %d %d", rank, ended, again);
}

TEST(all_ranks_get_the_error_of_the_rank_that_fails)
{
    static job j;
    make_files(t, &j);
    CHECK_HERE();
    ASSERT_OK(fsdp_run_ranks(RANKS, fail_on_rank_1, &j, NULL));
    for (int r = 0; r < RANKS; r++) {
        ASSERT_INT(j.status[r], FSDP_ERR_IO);
        ASSERT_STR(j.message[r], r == 1 ? "disk 1 is on fire" : "rank 1: disk 1 is on fire");
    }
}

static fsdp_status only_open(fsdp_group *group, void *arg)
{
    job *j = arg;
    const char *paths[FILES];
    fsdp_remote_files *f = NULL;
    const int rank = fsdp_group_rank(group);
    j->status[rank] = open_files(j, group, paths, &f);
    snprintf(j->message[rank], sizeof j->message[rank], "%s", fsdp_last_error());
    fsdp_remote_files_close(f);
    return FSDP_OK;
}

TEST(a_file_with_another_size_on_another_rank_is_refused)
{
    static job j;
    make_files(t, &j);
    CHECK_HERE();
    write_file(t, j.paths[2][FILES - 1], content[0], BYTES - 1);
    CHECK_HERE();
    ASSERT_OK(fsdp_run_ranks(RANKS, only_open, &j, NULL));
    for (int r = 0; r < RANKS; r++) {
        ASSERT_INT(j.status[r], FSDP_ERR_FORMAT);
        ASSERT(strstr(j.message[r], "__3_0.distcp has 787666 bytes on host "));
        ASSERT(strstr(j.message[r], " and 787665 bytes on host "));
    }
}

/* Read all of file 1 on ranks 0 and 2 through memory with verified blocks: twice, with the memory
 * dropped in between, and directly. */
static fsdp_status read_blocks(fsdp_remote_blocks *b, unsigned char *got)
{
    const fsdp_mapping map = fsdp_remote_blocks_map(b);
    for (int i = 0; i < 2; i++) {
        FSDP_TRY(fsdp_remote_blocks_need(b, 5, 10));
        if (fsdp_remote_blocks_held_bytes(b) != FSDP_PIECE_BYTES)
            return fsdp_error(FSDP_ERR_STATE, "more than one block");
        FSDP_TRY(fsdp_remote_blocks_need(b, 0, BYTES));
        FSDP_TRY(compare(map.data, 1, 0, BYTES));
        fsdp_remote_blocks_drop(b);
        if (fsdp_remote_blocks_held_bytes(b) || map.data[100])
            return fsdp_error(FSDP_ERR_STATE, "not dropped");
    }
    for (size_t at = 0; at < BYTES; at += SCRAMBLE * 31) {
        const size_t bytes = BYTES - at;
        FSDP_TRY(fsdp_remote_blocks_read(b, at, bytes, got));
        FSDP_TRY(compare(got, 1, at, bytes));
    }
    return FSDP_OK;
}

static fsdp_status read_file_1(fsdp_group *group, void *arg)
{
    job *j = arg;
    const int rank = fsdp_group_rank(group);
    const char *paths[FILES];
    fsdp_remote_files *f;
    fsdp_remote_blocks *b = NULL;
    FSDP_TRY(open_files(j, group, paths, &f));
    unsigned char *got = fsdp_calloc(BYTES, 1);
    fsdp_status status = got ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && rank != 1)
        status = fsdp_remote_blocks_create(f, 1, "host B: __1_0.distcp", true, &b);
    if (status == FSDP_OK && rank != 1)
        status = read_blocks(b, got);
    j->status[rank] = fsdp_agree(group, fsdp_remote_files_end(f, status));
    snprintf(j->message[rank], sizeof j->message[rank], "%s", fsdp_last_error());
    fsdp_remote_blocks_destroy(b);
    fsdp_remote_files_close(f);
    fsdp_free(got);
    return FSDP_OK;
}

TEST(blocks_of_a_remote_file_are_verified)
{
    static job j;
    make_files(t, &j);
    CHECK_HERE();
    ASSERT_OK(fsdp_run_ranks(RANKS, read_file_1, &j, NULL));
    for (int r = 0; r < RANKS; r++)
        ASSERT_INT(j.status[r], FSDP_OK);
    FILE *file = fopen(j.paths[1][1], "r+b");
    ASSERT(file && fseek(file, 2 * FSDP_PIECE_BYTES + 5, SEEK_SET) == 0);
    ASSERT(fputc(content[1][2 * FSDP_PIECE_BYTES + 5] ^ 1, file) != EOF && fclose(file) == 0);
    ASSERT_OK(fsdp_run_ranks(RANKS, read_file_1, &j, NULL));
    for (int r = 0; r < RANKS; r++) {
        ASSERT_INT(j.status[r], FSDP_ERR_FORMAT);
        ASSERT(strstr(j.message[r],
                      "host B: __1_0.distcp is damaged: checksum of bytes [524288, 786432)"));
    }
}
