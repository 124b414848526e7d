/* Status, messages and dtypes. */
#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/bf16.h"
#include "src/base/error.h"
#include "src/base/philox.h"
#include "tests/test.h"

TEST(an_error_carries_its_message_and_context)
{
    ASSERT_INT(fsdp_error(FSDP_ERR_FORMAT, "byte %d", 7), FSDP_ERR_FORMAT);
    ASSERT_STR(fsdp_last_error(), "byte 7");
    fsdp_error_context(FSDP_ERR_FORMAT, "%s", "file.bin");
    ASSERT_STR(fsdp_last_error(), "file.bin: byte 7");
    fsdp_error_context(FSDP_OK, "not added");
    ASSERT_STR(fsdp_last_error(), "file.bin: byte 7");
    (void)fsdp_error(FSDP_ERR_FORMAT, "again: %s", fsdp_last_error());
    ASSERT_STR(fsdp_last_error(), "again: file.bin: byte 7");
}

/* A failure during cleanup replaces the message; restoring brings back the first one. */
TEST(a_saved_error_survives_later_failures)
{
    fsdp_saved_error error;
    fsdp_error_save(fsdp_error(FSDP_ERR_IO, "disk full"), &error);
    (void)fsdp_error(FSDP_ERR_INVALID, "a second failure");
    ASSERT_INT(fsdp_error_restore(&error), FSDP_ERR_IO);
    ASSERT_STR(fsdp_last_error(), "disk full");

    fsdp_error_save(FSDP_OK, &error);
    (void)fsdp_error(FSDP_ERR_INVALID, "a later failure");
    ASSERT_OK(fsdp_error_restore(&error));
    ASSERT_STR(fsdp_last_error(), "a later failure");
}

TEST(dtypes_are_read_by_every_spelling)
{
    fsdp_dtype dtype;
    ASSERT_OK(fsdp_dtype_from_name("torch.bfloat16", &dtype));
    ASSERT_INT(dtype, FSDP_DTYPE_BF16);
    ASSERT_OK(fsdp_dtype_from_name("fp32", &dtype));
    ASSERT_INT(dtype, FSDP_DTYPE_F32);
    ASSERT_ERROR(fsdp_dtype_from_name("float8", &dtype), FSDP_ERR_INVALID, "float8");
}

/* Every bf16 and f16 value survives conversion to float32 and back. */
TEST(half_types_round_trip)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float wide = fsdp_f32_from_bf16((uint16_t)bits);
        if (!isnan(wide))
            ASSERT_INT(fsdp_bf16_from_f32(wide), bits);
        wide = fsdp_f32_from_f16((uint16_t)bits);
        if (!isnan(wide))
            ASSERT_INT(fsdp_f16_from_f32(wide), bits);
    }
    ASSERT_INT(fsdp_f16_from_f32(65519.0f), 0x7bff);
    ASSERT_INT(fsdp_f16_from_f32(65520.0f), 0x7c00);
    ASSERT_INT(fsdp_f16_from_f32(0x1p-25f), 0x0000); /* a tie goes to even */
    ASSERT_INT(fsdp_f16_from_f32(0x1.8p-25f), 0x0001);
}

/* The first block of key 0, counter 0, from the generator's published test vectors. */
TEST(philox_gives_the_published_vectors)
{
    fsdp_philox zero = fsdp_philox4x32(0, 0, 0);
    ASSERT_INT(zero.v[0], 0x6627e8d5);
    ASSERT_INT(zero.v[1], 0xe169c58d);
    ASSERT_INT(zero.v[2], 0xbc57ac4c);
    ASSERT_INT(zero.v[3], 0x9b00dbd8);
    fsdp_philox ones = fsdp_philox4x32(UINT64_MAX, UINT64_MAX, UINT64_MAX);
    ASSERT_INT(ones.v[0], 0x408f276d);
    ASSERT_INT(ones.v[3], 0x6d5451fd);
}

TEST(the_chosen_allocation_fails)
{
    fsdp_alloc_fail_at(2);
    void *first = fsdp_calloc(1, 8), *second = fsdp_calloc(1, 8), *third = fsdp_calloc(1, 8);
    ASSERT(first && !second && third);
    fsdp_free(first);
    fsdp_free(third);
}
