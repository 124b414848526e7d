/* Checksums of the blocks of a checkpoint's data files: reading a part of a chunk finds damage in
 * that part. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/dtensor.h>
#include <fsdp/state_dict.h>
#include <fsdp/tensor.h>

#include "src/base/alloc.h"
#include "src/dcp/block_sums.h"
#include "tests/dcp/dcp_case.h"

enum {
    ROWS = 1000,
    COLUMNS = 100,
    BLOCK = 256 << 10,
    /* In the last rows, which are in the second block. */
    DAMAGED = 390000
};

static float values[ROWS * COLUMNS];

/* Change byte `at` of a file, or truncate it to `at` bytes. */
static void damage(fsdp_test *t, const char *dir, const char *name, long at, bool cut)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "r+b");
    ASSERT(file);
    ASSERT(fseek(file, at, SEEK_SET) == 0);
    int byte = fgetc(file);
    ASSERT(fseek(file, at, SEEK_SET) == 0 && (cut || fputc(byte ^ 1, file) != EOF));
    ASSERT(fclose(file) == 0);
    ASSERT(!cut || truncate(path, at) == 0);
}

/* A replicated tensor, in one chunk. */
static void save(fsdp_test *t, const char *dir)
{
    const fsdp_dcp_key key = {.name = "x"};
    fsdp_dcp_manifest *manifest;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = (float)i;
    const fsdp_dcp_tensor x = {.dtype_name = "F32",
                               .shape = (int64_t[]){ROWS, COLUMNS},
                               .ndim = 2,
                               .end = ROWS,
                               .data = values};
    ASSERT_OK(fsdp_dcp_manifest_create(&manifest));
    ASSERT_OK(fsdp_dcp_manifest_tensor(manifest, &key, 1, &x));
    ASSERT_OK(fsdp_dcp_save_manifest(FSDP_OK, &(fsdp_group_place){.path = dir}, NULL, manifest));
    fsdp_dcp_manifest_destroy(manifest);
}

static fsdp_status read_rows(const char *dir, int64_t begin, int64_t end)
{
    static float got[ROWS * COLUMNS];
    fsdp_dcp_reader *reader;
    FSDP_TRY(fsdp_dcp_reader_open(dir, &reader));
    fsdp_status status = fsdp_dcp_reader_rows(reader, dcp_case_find(reader, "x"), begin, end, got);
    const size_t bytes = (size_t)(end - begin) * COLUMNS * sizeof *got;
    if (status == FSDP_OK && memcmp(got, values + begin * COLUMNS, bytes) != 0)
        status = fsdp_error(FSDP_ERR_STATE, "other values");
    fsdp_dcp_reader_close(reader);
    return status;
}

TEST(rows_of_a_damaged_block_are_refused_and_others_are_read)
{
    char dir[300];
    ASSERT_OK(dcp_case_path(t, "rows", dir));
    save(t, dir);
    CHECK_HERE();
    ASSERT_OK(read_rows(dir, 0, ROWS));
    damage(t, dir, "__0_0.distcp", DAMAGED, false);
    CHECK_HERE();
    ASSERT_OK(read_rows(dir, 0, 500));
    ASSERT(read_rows(dir, 0, ROWS) == FSDP_ERR_FORMAT);
    ASSERT(read_rows(dir, 990, ROWS) == FSDP_ERR_FORMAT);
    ASSERT(strstr(fsdp_last_error(), "'x'") &&
           strstr(fsdp_last_error(), "__0_0.distcp is damaged: checksum of bytes [262144, "));
}

/* A column is in all blocks. */
TEST(columns_are_checked_too)
{
    static float got[ROWS];
    char dir[300];
    fsdp_dcp_reader *reader;
    const int64_t column[] = {0, 3}, sizes[] = {ROWS, 1}, upper[] = {500, 1};
    ASSERT_OK(dcp_case_path(t, "columns", dir));
    save(t, dir);
    CHECK_HERE();
    damage(t, dir, "__0_0.distcp", DAMAGED, false);
    CHECK_HERE();
    ASSERT_OK(fsdp_dcp_reader_open(dir, &reader));
    const fsdp_dcp_item *item = dcp_case_find(reader, "x");
    ASSERT_OK(fsdp_dcp_reader_box(reader, item, column, upper, got));
    ASSERT(got[1] == (float)(COLUMNS + 3));
    ASSERT(fsdp_dcp_reader_box(reader, item, column, sizes, got) == FSDP_ERR_FORMAT);
    fsdp_dcp_reader_close(reader);
}

TEST(checksums_that_are_damaged_or_missing_are_named)
{
    char dir[300], path[400];
    ASSERT_OK(dcp_case_path(t, "cut", dir));
    save(t, dir);
    CHECK_HERE();
    damage(t, dir, "__0_0.crc32", 30, true);
    CHECK_HERE();
    ASSERT(read_rows(dir, 0, 1) == FSDP_ERR_FORMAT);
    ASSERT_OK(dcp_case_path(t, "flipped", dir));
    save(t, dir);
    CHECK_HERE();
    damage(t, dir, "__0_0.crc32", 21, false);
    CHECK_HERE();
    ASSERT(read_rows(dir, 0, 1) == FSDP_ERR_FORMAT);
    ASSERT(strstr(fsdp_last_error(), "__0_0.crc32: these checksums are damaged"));
    snprintf(path, sizeof path, "%s/__0_0.crc32", dir);
    ASSERT(unlink(path) == 0);
    ASSERT(read_rows(dir, 0, 1) == FSDP_ERR_NOT_FOUND);
    ASSERT(strstr(fsdp_last_error(), "__0_0.crc32"));
}

/* Sums do not depend on the pieces in which the file was written, which end at, before and after a
 * block. */
TEST(pieces_of_any_size_give_the_same_checksums)
{
    static unsigned char data[2 * BLOCK + 5];
    static const size_t pieces[] = {1, BLOCK - 1, BLOCK + 3, 2};
    fsdp_block_sums whole, cut;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7 + i / 1000);
    fsdp_block_sums_init(&whole);
    fsdp_block_sums_init(&cut);
    ASSERT_OK(fsdp_block_sums_add(&whole, data, sizeof data));
    for (size_t i = 0, at = 0; i < sizeof pieces / sizeof *pieces; at += pieces[i++])
        ASSERT_OK(fsdp_block_sums_add(&cut, data + at, pieces[i]));
    ASSERT(whole.n == 2 && cut.n == 2 && whole.bytes == cut.bytes && whole.crc == cut.crc);
    ASSERT(memcmp(whole.sums, cut.sums, 2 * sizeof *cut.sums) == 0);
    ASSERT(whole.sums[0] == fsdp_crc32(&whole.table, 0, data, BLOCK));
    fsdp_block_sums_fini(&whole);
    fsdp_block_sums_fini(&cut);
}

/* The result of PyTorch saving over a folder of this library: PyTorch's metadata, and checksums of
 * files that do not exist any more. */
static void disown(fsdp_test *t, const char *dir)
{
    char path[400], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/.metadata", dir);
    ASSERT_OK(fsdp_file_read(path, 1 << 20, &text, &bytes));
    char *id = memmem(text, bytes, FSDP_DCP_SAVE_ID, strlen(FSDP_DCP_SAVE_ID));
    ASSERT(id);
    id[0] = 'g';
    ASSERT_OK(fsdp_file_write(path, text, bytes));
    fsdp_free(text);
    damage(t, dir, "__0_0.crc32", 21, false);
}

/* Two ranks read halves of one chunk, and blocks have no checksums: between them they find
 * damage. */
TEST_RANKS(checkpoints_of_others_are_read_through_by_all_ranks_together, 2)
{
    const fsdp_placement shard = {FSDP_SHARD, 0};
    char dir[300] = "";
    fsdp_device *device;
    fsdp_device_mesh *mesh;
    fsdp_tensor *whole, *part;
    fsdp_state_dict *dict;
    ASSERT_OK(dcp_case_path(t, "others", dir));
    if (t->rank == 0) {
        save(t, dir);
        disown(t, dir);
    }
    CHECK_HERE();
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_device_mesh_create(t->group, 1, (int[]){2}, NULL, &mesh));
    ASSERT_OK(fsdp_tensor_create(device, FSDP_DTYPE_F32, 2, (int64_t[]){ROWS, COLUMNS},
                                 FSDP_TAG_DATA, &whole));
    ASSERT_OK(fsdp_distribute_tensor(whole, mesh, &shard, &part));
    ASSERT_OK(fsdp_state_dict_create(&dict));
    ASSERT_OK(fsdp_state_dict_put_tensor(dict, &(fsdp_state_key){.name = "x"}, 1, part));
    ASSERT_OK(fsdp_dcp_load(dict, dir, t->group, NULL));
    if (t->rank == 0)
        damage(t, dir, "__0_0.distcp", DAMAGED, false);
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT(fsdp_dcp_load(dict, dir, t->group, NULL) == FSDP_ERR_FORMAT);
    ASSERT(strstr(fsdp_last_error(), "'x'"));
    fsdp_state_dict_destroy(dict);
    fsdp_tensor_release(part);
    fsdp_tensor_release(whole);
    fsdp_device_mesh_destroy(mesh);
    fsdp_device_destroy(device);
}

enum {
    READ_BYTES = 4 * BLOCK + 5
};

/* A file with its checksums, as in a checkpoint. */
static void write_summed(fsdp_test *t, const char *dir, const unsigned char *data, char path[400])
{
    fsdp_block_sums sums;
    snprintf(path, 400, "%s/__0_0.distcp", dir);
    ASSERT_OK(fsdp_directory_make(dir));
    ASSERT_OK(fsdp_file_write(path, data, READ_BYTES));
    fsdp_block_sums_init(&sums);
    ASSERT_OK(fsdp_block_sums_add(&sums, data, READ_BYTES));
    ASSERT_OK(fsdp_block_sums_write(&sums, path));
    fsdp_block_sums_fini(&sums);
}

static fsdp_status read_memory(void *context, uint64_t offset, void *out, size_t bytes)
{
    memcpy(out, (const unsigned char *)context + offset, bytes);
    return FSDP_OK;
}

/* The memory of a remote file does not have the blocks that were read directly. */
TEST(a_block_that_was_read_directly_is_not_verified_in_the_mapping)
{
    static unsigned char data[READ_BYTES], memory[READ_BYTES], got[READ_BYTES];
    const fsdp_mapping map = {.data = memory, .bytes = READ_BYTES};
    char dir[300], path[400];
    fsdp_block_check *check;
    memset(data, 7, sizeof data);
    ASSERT_OK(dcp_case_path(t, "direct", dir));
    write_summed(t, dir, data, path);
    CHECK_HERE();
    ASSERT_OK(fsdp_block_check_open(path, &map, &check));
    ASSERT_OK(fsdp_block_check_read_by(check, read_memory, data, BLOCK, 2 * BLOCK, got));
    ASSERT(memcmp(got, data, 2 * BLOCK) == 0);
    ASSERT(fsdp_block_check_range(check, BLOCK + 1, 5) == FSDP_ERR_FORMAT);
    memcpy(memory, data, sizeof data);
    ASSERT_OK(fsdp_block_check_range(check, BLOCK + 1, 5));
    fsdp_block_check_close(check);
}

/* Whole blocks are read by descriptor, the rest from the mapping. Both find damage, and reading by
 * descriptor also finds that the file was truncated, which would be a SIGBUS with the mapping. */
TEST(bytes_are_read_and_compared_in_one)
{
    static unsigned char data[READ_BYTES], got[READ_BYTES];
    static const size_t ranges[][2] = {
        {0, READ_BYTES}, {3, BLOCK}, {BLOCK, BLOCK}, {17, 0}, {BLOCK - 1, 2 * BLOCK + 2},
        {4 * BLOCK, 5}};
    char dir[300], path[400];
    fsdp_block_check *check;
    fsdp_mapping map;
    for (size_t i = 0; i < READ_BYTES; i++)
        data[i] = (unsigned char)(i * 7 + i / 1000);
    ASSERT_OK(dcp_case_path(t, "read", dir));
    write_summed(t, dir, data, path);
    CHECK_HERE();
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ASSERT(fd >= 0);
    ASSERT_OK(fsdp_file_map(path, &map));
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const size_t at = ranges[i][0], bytes = ranges[i][1];
        ASSERT_OK(fsdp_block_check_open(path, &map, &check));
        memset(got, 0, sizeof got);
        ASSERT_OK(fsdp_block_check_read(check, fd, at, bytes, got));
        ASSERT(memcmp(got, data + at, bytes) == 0);
        ASSERT(bytes == READ_BYTES || got[bytes] == 0);
        fsdp_block_check_close(check);
    }
    damage(t, dir, "__0_0.distcp", BLOCK + 100, false);
    CHECK_HERE();
    ASSERT_OK(fsdp_block_check_open(path, &map, &check));
    ASSERT_OK(fsdp_block_check_read(check, fd, 2 * BLOCK, 2 * BLOCK + 5, got));
    ASSERT(fsdp_block_check_read(check, fd, 0, READ_BYTES, got) == FSDP_ERR_FORMAT);
    ASSERT(strstr(fsdp_last_error(), "is damaged: checksum of bytes [262144, 524288)"));
    ASSERT(fsdp_block_check_read(check, fd, 2 * BLOCK - 1, 1, got) == FSDP_ERR_FORMAT);
    damage(t, dir, "__0_0.distcp", 3 * BLOCK, true);
    CHECK_HERE();
    ASSERT(fsdp_block_check_read(check, fd, 3 * BLOCK, BLOCK, got) == FSDP_ERR_FORMAT);
    ASSERT(strstr(fsdp_last_error(), "__0_0.distcp: ends at byte 786432: it was shortened"));
    fsdp_block_check_close(check);
    fsdp_file_unmap(&map);
    close(fd);
}
