/* Names of devices and what they mean: Note [Choosing a device] in src/tensor/cards.h. The testing
 * build has an emulated machine with cards, unless it was built without CUDA. */
#include <stdio.h>

#include "src/base/assert.h"
#include "src/tensor/cards.h"
#include "tests/test.h"

#define NEEDS_CARDS(n)                                                                             \
    int n;                                                                                         \
    if (fsdp_cards_count(&n) != FSDP_OK)                                                           \
    SKIP("%s", fsdp_last_error())

TEST(names_are_checked)
{
    static const char *const good[] = {"cpu",  "meta",   "meta:cuda", "auto",
                                       "cuda", "cuda:0", "cuda:17",   "fake"};
    static const char *const bad[] = {"",           "gpu",     "CPU",     "cpu:1",
                                      "cuda:",      "cuda:-1", "cuda:+1", "cuda:1x",
                                      "cuda:99999", "cuda1",   "meta:cpu"};
    for (size_t i = 0; i < FSDP_LENGTH(good); i++)
        ASSERT_OK(fsdp_device_check_name(good[i]));
    for (size_t i = 0; i < FSDP_LENGTH(bad); i++)
        ASSERT(fsdp_device_check_name(bad[i]) == FSDP_ERR_INVALID);
    ASSERT_ERROR(fsdp_device_check_name("gpu"), FSDP_ERR_INVALID,
                 "unknown device 'gpu' (known: cpu, meta, cuda, cuda:N, fake, auto)");
}

TEST(cuda_is_the_card_of_the_rank_and_ranks_may_share_cards)
{
    char name[FSDP_DEVICE_NAME_BYTES], expected[FSDP_DEVICE_NAME_BYTES];
    NEEDS_CARDS(n);
    for (int rank = 0; rank < 2 * n + 1; rank++) {
        ASSERT_OK(fsdp_device_resolve("cuda", rank, name));
        snprintf(expected, sizeof expected, "cuda:%d", rank % n);
        ASSERT_STR(name, expected);
        ASSERT_OK(fsdp_device_resolve("cuda:0", rank, name));
        ASSERT_STR(name, "cuda:0");
    }
    snprintf(name, sizeof name, "cuda:%d", n);
    ASSERT_ERROR(fsdp_device_resolve(name, 0, expected), FSDP_ERR_INVALID, "this machine has");
    ASSERT_INT(fsdp_cuda_device_count(), n);
    ASSERT_INT(fsdp_device_ranks_per_card("cuda", 4 * n + 1), 5);
    ASSERT_INT(fsdp_device_ranks_per_card("cuda:0", 7), 7);
}

TEST(auto_never_takes_the_emulator)
{
    char name[FSDP_DEVICE_NAME_BYTES];
    const fsdp_card_ops *cards = fsdp_card_functions();
    ASSERT_OK(fsdp_device_resolve("auto", 0, name));
    if (!cards || cards->is_emulated)
        ASSERT_STR(name, "cpu");
    else
        ASSERT(strcmp(name, fsdp_cards_usable() ? "cuda:0" : "cpu") == 0);
}

TEST(devices_are_described)
{
    fsdp_device *device;
    char text[256];
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &device));
    fsdp_device_describe(device, text);
    ASSERT_STR(text, "cpu");
    fsdp_device_destroy(device);
    NEEDS_CARDS(n);
    ASSERT_OK(
        fsdp_device_create(&(fsdp_device_options){.name = "cuda", .local_rank = n + 1}, &device));
    fsdp_device_describe(device, text);
    ASSERT_INT(device->ordinal, (n + 1) % n);
    snprintf(text + 128, 128, "cuda:%d (", device->ordinal);
    ASSERT(strncmp(text, text + 128, strlen(text + 128)) == 0 && strstr(text, " GiB)"));
    fsdp_device_destroy(device);
}

/* The rules are those of NVIDIA's compatibility of binaries and PTX. */
TEST(a_card_runs_code_of_its_major_version_or_ptx)
{
    static const struct {
        const char *codes;
        int capability;
        const char *code;
    } rows[] = {{"sm_80 sm_90a compute_90", 80, "sm_80"},
                {"sm_80 sm_90a compute_90", 86, "sm_80"},
                {"sm_80 sm_90a compute_90", 90, "sm_90a"},
                {"sm_80 sm_90a compute_90", 100, "PTX of compute_90"},
                {"sm_80 sm_90a compute_90", 120, "PTX of compute_90"},
                {"sm_80 sm_90a compute_90", 75, ""},
                {"sm_80 sm_86", 86, "sm_86"},
                {"sm_80 sm_86", 80, "sm_80"},
                {"sm_86", 80, ""},
                {"sm_90a", 90, "sm_90a"},
                {"sm_90a", 100, ""},
                {"sm_90 sm_90a", 90, "sm_90a"},
                {"sm_80 compute_80", 90, "PTX of compute_80"},
                {"compute_80 compute_90", 100, "PTX of compute_90"},
                {"compute_90a", 100, ""},
                {"", 90, ""}};
    for (size_t i = 0; i < FSDP_LENGTH(rows); i++) {
        char code[FSDP_CARD_CODE_BYTES];
        fsdp_card_choose_code(rows[i].codes, rows[i].capability, code);
        ASSERT_STR(code, rows[i].code);
    }
}

/* The message says what was to be allocated, and how much of the card is free. */
TEST(a_full_card_is_reported_with_request_and_free_memory)
{
    NEEDS_CARDS(n);
    fsdp_device *device;
    fsdp_tensor *tensor;
    fsdp_card card;
    ASSERT_OK(fsdp_card_describe(0, &card));
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "cuda:0"}, &device));
    const int64_t elements = card.bytes / 4 + (1 << 20);
    ASSERT_ERROR(fsdp_tensor_create(device, FSDP_DTYPE_F32, 1, &elements, FSDP_TAG_OPTIM, &tensor),
                 FSDP_ERR_NOMEM, "bytes (optim) on top of 0 allocated: device cuda:0: ");
    ASSERT(strstr(fsdp_last_error(), "GiB are free"));
    fsdp_device_destroy(device);
}

TEST(a_build_without_cuda_says_how_to_get_one)
{
    int n;
    if (fsdp_card_functions())
        SKIP("this build has CUDA");
    ASSERT_ERROR(fsdp_cards_count(&n), FSDP_ERR_UNSUPPORTED, "device cuda: this build has none");
    ASSERT(strstr(fsdp_last_error(), "docs/cuda.md"));
}
