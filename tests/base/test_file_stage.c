/* What was written is read back, in the order of the requests. Failures are returned only to waits
 * for the request that failed or a later one. */
#include "src/base/file_stage.h"

#include <signal.h>
#include <sys/resource.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "tests/test.h"

enum {
    BLOCKS = 200, /* more than the queue holds */
    BLOCK_BYTES = 5000
};

static void fill(unsigned char *block, int i)
{
    for (int k = 0; k < BLOCK_BYTES; k++)
        block[k] = (unsigned char)(i * 31 + k * 7);
}

/* Each block is written from the same buffer, which is reused only after its ticket. */
TEST(blocks_come_back_as_they_were)
{
    static unsigned char out[2][BLOCK_BYTES], in[BLOCKS][BLOCK_BYTES], expected[BLOCK_BYTES];
    fsdp_file_ticket tickets[2] = {0};
    fsdp_file_stage *stage = NULL;
    ASSERT_OK(fsdp_file_stage_create(fsdp_test_dir(t), 0, &stage));
    ASSERT_OK(fsdp_file_stage_reserve(stage, (uint64_t)BLOCKS * BLOCK_BYTES));
    for (int i = 0; i < BLOCKS; i++) {
        ASSERT_OK(fsdp_file_stage_wait(stage, tickets[i % 2]));
        fill(out[i % 2], i);
        tickets[i % 2] =
            fsdp_file_stage_write(stage, (uint64_t)i * BLOCK_BYTES, out[i % 2], BLOCK_BYTES, NULL);
    }
    fsdp_file_ticket last = 0;
    for (int i = BLOCKS; i-- > 0;)
        last = fsdp_file_stage_read(stage, (uint64_t)i * BLOCK_BYTES, in[i], BLOCK_BYTES, NULL);
    ASSERT_INT(last, 2 * BLOCKS);
    ASSERT_OK(fsdp_file_stage_wait(stage, last));
    for (int i = 0; i < BLOCKS; i++) {
        fill(expected, i);
        ASSERT(memcmp(in[i], expected, BLOCK_BYTES) == 0);
    }
    fsdp_file_stage_destroy(stage);
}

/* A read follows directly after a write of the same bytes, and a second write follows the read. */
TEST(a_read_sees_the_writes_before_it_and_none_after)
{
    const char first[] = "first", second[] = "other";
    char got[sizeof first] = "";
    fsdp_file_stage *stage = NULL;
    ASSERT_OK(fsdp_file_stage_create(fsdp_test_dir(t), 4096, &stage));
    fsdp_file_stage_write(stage, 100, first, sizeof first, NULL);
    fsdp_file_stage_read(stage, 100, got, sizeof got, NULL);
    fsdp_file_stage_write(stage, 100, second, sizeof second, NULL);
    fsdp_file_ticket empty = fsdp_file_stage_write(stage, 0, NULL, 0, NULL);
    ASSERT_OK(fsdp_file_stage_wait(stage, empty));
    ASSERT_STR(got, "first");
    fsdp_file_stage_destroy(stage);
}

TEST(the_file_has_no_name)
{
    const char *dir = fsdp_test_dir(t);
    char **names = NULL;
    size_t count = 0;
    fsdp_file_stage *stage = NULL;
    ASSERT_OK(fsdp_file_stage_create(dir, 4096, &stage));
    ASSERT_OK(fsdp_directory_list(dir, &names, &count));
    ASSERT_INT(count, 0);
    fsdp_free(names);
    fsdp_file_stage_destroy(stage);
}

TEST(a_read_behind_the_end_fails_and_so_do_those_after_it)
{
    char bytes[100] = "";
    fsdp_file_stage *stage = NULL;
    ASSERT_OK(fsdp_file_stage_create(fsdp_test_dir(t), 0, &stage));
    fsdp_file_ticket good = fsdp_file_stage_write(stage, 0, bytes, sizeof bytes, NULL);
    fsdp_file_ticket bad = fsdp_file_stage_read(stage, 50, bytes, sizeof bytes, NULL);
    fsdp_file_ticket later = fsdp_file_stage_write(stage, 0, bytes, sizeof bytes, NULL);
    ASSERT_ERROR(fsdp_file_stage_wait(stage, later), FSDP_ERR_IO, "ends at byte 100, before 150");
    ASSERT_ERROR(fsdp_file_stage_wait(stage, bad), FSDP_ERR_IO, "ends at byte 100");
    ASSERT_OK(fsdp_file_stage_wait(stage, good));
    fsdp_file_stage_destroy(stage);
}

TEST(no_room_is_an_error_that_names_the_folder_and_the_bytes)
{
    const char *dir = fsdp_test_dir(t);
    fsdp_file_stage *stage = NULL;
    ASSERT_ERROR(fsdp_file_stage_create(dir, UINT64_C(1) << 62, &stage), FSDP_ERR_IO,
                 "4611686018427387904 bytes");
    ASSERT(strstr(fsdp_last_error(), dir));
    ASSERT_ERROR(fsdp_file_stage_create("/proc/none", 0, &stage), FSDP_ERR_NOT_FOUND, "/proc/none");
    ASSERT(!stage);
}

/* A limit on the size of files simulates a full disk. */
TEST(wait_reports_a_full_disk)
{
    static const unsigned char block[BLOCK_BYTES];
    struct rlimit old;
    fsdp_file_stage *stage = NULL;
    ASSERT_OK(fsdp_file_stage_create(fsdp_test_dir(t), 0, &stage));
    ASSERT(getrlimit(RLIMIT_FSIZE, &old) == 0);
    ASSERT(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, old.rlim_max}) == 0);
    fsdp_file_ticket ticket = fsdp_file_stage_write(stage, 0, block, sizeof block, NULL);
    fsdp_status status = fsdp_file_stage_wait(stage, ticket);
    ASSERT(setrlimit(RLIMIT_FSIZE, &old) == 0);
    ASSERT_INT(status, FSDP_ERR_IO);
    ASSERT(strstr(fsdp_last_error(), "cannot write 5000 bytes of the offload file"));
    fsdp_file_stage_destroy(stage);
}
