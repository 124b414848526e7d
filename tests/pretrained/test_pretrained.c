/* from_pretrained() step by step: fsdp_pretrained_open() finds, loads and refuses models.
 * fsdp_model_open() uses the same functions, so the forms of folders are tested in
 * tests/pretrained/test_model.c. */
#include <stdio.h>
#include <string.h>

#include <fsdp/fsdp.h>
#include <fsdp/train.h>

#include "tests/test.h"

/* The first element of the embedding on this rank; NAN if the rank has no rows. */
static float first_element(fsdp_module *model)
{
    fsdp_parameter *shared = fsdp_module_parameter(fsdp_module_find(model, "shared"), "weight");
    fsdp_tensor *local = fsdp_parameter_local(shared);
    return fsdp_tensor_numel(local) > 0 ? *(const float *)fsdp_tensor_data(local) : 0.0f;
}

/* Two ranks, sharded before loading: rank 0's row 0 is the file's, or that drawn from the seed. */
static void check_load(fsdp_test *t, bool from_config, float *element)
{
    fsdp_pretrained p = {0};
    fsdp_device *device;
    fsdp_module *model;
    fsdp_load_report report;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_pretrained_open(fsdp_test_path("golden/t5_v1_1/model"), from_config, &p));
    ASSERT_INT(p.weights != NULL, !from_config);
    ASSERT(strstr(p.dir, "golden/t5_v1_1/model"));
    ASSERT(!fsdp_model_config_info(&p.config).tie_word_embeddings);
    ASSERT_OK(fsdp_model_create(&p.config, &model));
    ASSERT_OK(fsdp_fully_shard(model, t->group, device, NULL));
    ASSERT_OK(fsdp_pretrained_load(&p, model, t->group, 3, &report));
    ASSERT_INT(report.n_unexpected + report.n_fresh, 0);
    *element = first_element(model);
    fsdp_load_report_free(&report);
    fsdp_pretrained_close(&p);
    ASSERT(!p.dir && !p.weights);
    fsdp_pretrained_close(&p);
    fsdp_module_destroy(model);
    fsdp_device_destroy(device);
}

TEST_RANKS(weights_are_read_and_without_them_drawn, 2)
{
    float read, drawn;
    check_load(t, false, &read);
    CHECK_HERE();
    check_load(t, true, &drawn);
    CHECK_HERE();
    fsdp_checkpoint_reader *file;
    const fsdp_checkpoint_entry *shared;
    float expected;
    ASSERT_OK(fsdp_checkpoint_open(fsdp_test_path("golden/t5_v1_1/model"), &file));
    ASSERT_OK(fsdp_checkpoint_get(file, "shared.weight", &shared));
    memcpy(&expected, shared->data, sizeof expected);
    fsdp_checkpoint_close(file);
    if (t->rank == 0)
        ASSERT_F32(read, expected);
    if (t->rank == 0)
        ASSERT(drawn < expected || drawn > expected);
}

TEST(what_is_not_there_is_named)
{
    fsdp_pretrained p = {0};
    ASSERT_ERROR(fsdp_pretrained_open("no-such-model", false, &p), FSDP_ERR_NOT_FOUND,
                 "'no-such-model' is neither a directory nor in the Hugging Face cache");
    ASSERT_ERROR(fsdp_pretrained_open(fsdp_test_path("fixtures/text"), true, &p),
                 FSDP_ERR_NOT_FOUND, "config.json");
    ASSERT(!p.dir);
}

TEST(a_rank_alone_has_at_least_one_thread)
{
    int threads = 0;
    ASSERT_OK(fsdp_default_threads(NULL, &threads));
    ASSERT(threads >= 1);
}
