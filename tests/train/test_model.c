/* Models found, loaded, saved: the folder that comes back holds the same bits, and bad folders are
 * refused with a message that says what is wrong, before anything changed. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/nn/module.h"
#include "src/train/model.h"
#include "tests/test.h"

static const char *golden(const char *name)
{
    static _Thread_local char path[600];
    char relative[300];
    snprintf(relative, sizeof relative, "golden/%s", name);
    snprintf(path, sizeof path, "%s", fsdp_test_path(relative));
    return path;
}

/* A folder of the test that all ranks know: rank 0's, told to the others. */
static void shared_dir(fsdp_test *t, const char *name, char path[300])
{
    if (t->rank == 0)
        snprintf(path, 300, "%s/%s", fsdp_test_dir(t), name);
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, path, 300, 0));
}

/* --- same bits --- */

/* Every parameter of `a` and `b`, gathered, is the same to the last bit. */
static void assert_equal_models(fsdp_test *t, fsdp_model *a, fsdp_model *b)
{
    fsdp_parameter_list x, y;
    ASSERT_OK(fsdp_module_parameters(a->module, false, &x));
    ASSERT_OK(fsdp_module_parameters(b->module, false, &y));
    ASSERT_INT(x.n, y.n);
    for (size_t i = 0; i < x.n; i++) {
        fsdp_tensor *p, *q;
        ASSERT_STR(x.items[i].name, y.items[i].name);
        ASSERT_OK(fsdp_full_tensor(x.items[i].parameter->local, &p));
        ASSERT_OK(fsdp_full_tensor(y.items[i].parameter->local, &q));
        size_t bytes = (size_t)fsdp_tensor_numel(p) * sizeof(float);
        ASSERT_INT(fsdp_tensor_numel(p), fsdp_tensor_numel(q));
        if (memcmp(fsdp_tensor_data(p), fsdp_tensor_data(q), bytes) != 0)
            FAIL("%s differs", x.items[i].name);
        fsdp_tensor_release(p);
        fsdp_tensor_release(q);
    }
    fsdp_parameter_list_free(&x);
    fsdp_parameter_list_free(&y);
}

static void check_round_trip(fsdp_test *t, const fsdp_model_options *options,
                             const fsdp_model_save_options *save)
{
    fsdp_device *device;
    fsdp_model *first, *second;
    char dir[300];
    shared_dir(t, "saved", dir);
    CHECK_HERE();
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_model_open(options, t->group, device, &first));
    ASSERT_OK(fsdp_model_save(first, dir, save));
    fsdp_model_options again = {.name = dir};
    ASSERT_OK(fsdp_model_open(&again, t->group, device, &second));
    ASSERT_INT(second->report.n_unexpected, 0);
    ASSERT_INT(second->config.tie_word_embeddings, first->config.tie_word_embeddings);
    ASSERT_INT(second->config.scale_decoder_outputs, first->config.scale_decoder_outputs);
    assert_equal_models(t, first, second);
    fsdp_model_close(second);
    fsdp_model_close(first);
    fsdp_device_destroy(device);
    if (t->group)
        ASSERT_OK(fsdp_barrier(t->group));
    if (t->rank == 0)
        ASSERT_OK(fsdp_tree_remove(dir));
}

static const fsdp_t5_config odd_shape = {.vocab_size = 17,
                                         .d_model = 15,
                                         .d_ff = 7,
                                         .d_kv = 5,
                                         .num_layers = 2,
                                         .num_decoder_layers = 1,
                                         .num_heads = 3,
                                         .relative_attention_num_buckets = 8,
                                         .relative_attention_max_distance = 20,
                                         .layer_norm_epsilon = 1e-6,
                                         .initializer_factor = 1.0,
                                         .is_gated_act = true,
                                         .eos_token_id = 1};

static void check_round_trips(fsdp_test *t)
{
    static const char *const names[] = {"t5_v1_0/model", "t5_v1_1/model"};
    for (int i = 0; i < 2; i++) {
        check_round_trip(t, &(fsdp_model_options){.name = golden(names[i])}, NULL);
        CHECK_HERE();
    }
    fsdp_model_options drawn = {.config = &odd_shape, .seed = 3};
    check_round_trip(t, &drawn, NULL);
    CHECK_HERE();
    check_round_trip(t, &drawn, &(fsdp_model_save_options){.max_shard_bytes = 2000});
    CHECK_HERE();
    /* tied, but not scaled: only transformers 5 knows it, by an lm_head equal to the embedding */
    fsdp_t5_config tied = odd_shape;
    tied.tie_word_embeddings = true;
    check_round_trip(t, &(fsdp_model_options){.config = &tied}, NULL);
}

TEST(a_saved_model_loads_with_the_same_bits)
{
    check_round_trips(t);
}
TEST_RANKS(a_saved_model_loads_with_the_same_bits_on_2_ranks, 2)
{
    check_round_trips(t);
}
TEST_RANKS(a_saved_model_loads_with_the_same_bits_on_3_ranks, 3)
{
    check_round_trips(t);
}

/* What is drawn depends on seed, name and element, not on who holds the row. */
TEST_RANKS(drawn_weights_do_not_depend_on_the_number_of_ranks, 3)
{
    fsdp_device *device;
    fsdp_model *sharded, *alone;
    fsdp_model_options options = {.config = &odd_shape, .seed = 11};
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_model_open(&options, t->group, device, &sharded));
    ASSERT_OK(fsdp_model_open(&options, NULL, device, &alone));
    assert_equal_models(t, sharded, alone);
    fsdp_model_close(alone);
    fsdp_model_close(sharded);
    fsdp_device_destroy(device);
}

/* Saving gathers one parameter at a time: what it holds is the largest, with a row of padding for
 * each rank, and what is written of it in another dtype. */
TEST_RANKS(saving_never_holds_more_than_the_largest_parameter, 3)
{
    fsdp_t5_config config = odd_shape;
    config.vocab_size = 1000;
    fsdp_device *device;
    fsdp_model *m;
    fsdp_memory_stats stats;
    char dir[300];
    shared_dir(t, "saved", dir);
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.config = &config}, t->group, device, &m));
    fsdp_device_reset_peak_memory(device);
    ASSERT_OK(fsdp_model_save(m, dir, NULL));
    fsdp_device_memory(device, &stats);
    ASSERT(stats.tag_peak[FSDP_TAG_COMM] >= 1000 * 15 * 4);
    ASSERT(stats.tag_peak[FSDP_TAG_COMM] <= (1000 + 3) * 15 * 4 + 64);
    ASSERT_INT(stats.tag_allocated[FSDP_TAG_COMM], 0);
    fsdp_model_close(m);
    fsdp_device_destroy(device);
}

/* A second save with fewer files leaves none of the first that would be read in its place. */
TEST(weights_of_an_earlier_save_do_not_stay)
{
    fsdp_device *device;
    fsdp_model *m;
    char dir[300], stray[400];
    shared_dir(t, "twice", dir);
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.config = &odd_shape}, NULL, device, &m));
    ASSERT_OK(fsdp_model_save(m, dir, &(fsdp_model_save_options){.max_shard_bytes = 2000}));
    snprintf(stray, sizeof stray, "%s/notes.txt", dir);
    ASSERT_OK(fsdp_file_write(stray, "kept", 4));
    ASSERT_ERROR(fsdp_model_save(m, dir, NULL), FSDP_ERR_INVALID, "twice");
    ASSERT_OK(fsdp_model_save(m, dir, &(fsdp_model_save_options){.overwrite = true}));
    char **names;
    size_t count;
    ASSERT_OK(fsdp_directory_list(dir, &names, &count));
    ASSERT_INT(count, 4);
    ASSERT_STR(names[0], "config.json");
    ASSERT_STR(names[1], "generation_config.json");
    ASSERT_STR(names[2], "model.safetensors");
    ASSERT_STR(names[3], "notes.txt");
    fsdp_free(names);
    fsdp_model_close(m);
    fsdp_device_destroy(device);
}

/* --- bad folders --- */

/* A copy of a golden model in *dir, whose weights the caller then spoils. */
static void copy_model(fsdp_test *t, const char *name, char dir[300])
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    shared_dir(t, "copy", dir);
    if (t->rank != 0)
        return;
    ASSERT_OK(fsdp_tree_remove(dir));
    ASSERT_OK(fsdp_directory_make(dir));
    for (int i = 0; i < 2; i++) {
        char from[700], to[400];
        snprintf(from, sizeof from, "%s/%s", golden(name), files[i]);
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        ASSERT_OK(fsdp_file_copy(from, to));
    }
}

/* Replace `from` by `to`, as long, once in `path`. */
static void patch(fsdp_test *t, const char *dir, const char *file, const char *from, const char *to)
{
    char path[400], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    ASSERT_OK(fsdp_file_read(path, 10000000, &text, &bytes));
    char *at = memmem(text, bytes, from, strlen(from));
    ASSERT(at && strlen(from) == strlen(to));
    memcpy(at, to, strlen(to));
    ASSERT_OK(fsdp_file_write(path, text, bytes));
    fsdp_free(text);
}

static void assert_refused(fsdp_test *t, const char *dir, fsdp_status status, const char *text)
{
    fsdp_device *device;
    fsdp_model *m;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_ERROR(fsdp_model_open(&(fsdp_model_options){.name = dir}, t->group, device, &m), status,
                 text);
    fsdp_device_destroy(device);
}

TEST(a_missing_tensor_is_named)
{
    char dir[300];
    copy_model(t, "t5_v1_1/model", dir);
    CHECK_HERE();
    patch(t, dir, "model.safetensors", "decoder.final_layer_norm.weight",
          "decoder.final_layer_norm.xeight");
    CHECK_HERE();
    assert_refused(t, dir, FSDP_ERR_NOT_FOUND,
                   "there is no tensor 'decoder.final_layer_norm.weight'");
}

TEST(a_wrong_shape_is_named_with_both_shapes)
{
    char dir[300];
    copy_model(t, "t5_v1_0/model", dir);
    CHECK_HERE();
    patch(t, dir, "config.json", "\"vocab_size\": 320", "\"vocab_size\": 321");
    CHECK_HERE();
    assert_refused(t, dir, FSDP_ERR_FORMAT,
                   "tensor 'shared.weight' has shape [320, 48], expected [321, 48]");
}

TEST(a_config_without_a_key_is_refused)
{
    char dir[300];
    copy_model(t, "t5_v1_0/model", dir);
    CHECK_HERE();
    patch(t, dir, "config.json", "\"d_ff\"", "\"d_fg\"");
    CHECK_HERE();
    assert_refused(t, dir, FSDP_ERR_NOT_FOUND, "d_ff");
}

TEST(a_truncated_file_is_refused)
{
    char dir[300], path[400];
    copy_model(t, "t5_v1_0/model", dir);
    CHECK_HERE();
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    ASSERT(truncate(path, 300000) == 0);
    assert_refused(t, dir, FSDP_ERR_FORMAT, "model.safetensors");
}

/* Only rank 1 sees a bad file: rank 0 fails too, with rank 1's message. */
TEST_RANKS(one_ranks_bad_file_is_every_ranks_error, 2)
{
    char dir[300];
    copy_model(t, "t5_v1_0/model", dir);
    CHECK_HERE();
    ASSERT_OK(fsdp_barrier(t->group));
    char missing[400];
    snprintf(missing, sizeof missing, "%s/%s", dir, "missing");
    assert_refused(t, t->rank == 1 ? missing : dir, FSDP_ERR_NOT_FOUND, "missing");
}

/* Rank 0 cannot write: every rank fails, and nothing is left. */
TEST_RANKS(a_save_that_cannot_be_written_fails_on_every_rank, 2)
{
    fsdp_device *device;
    fsdp_model *m;
    char dir[300], below[400];
    shared_dir(t, "file", dir);
    if (t->rank == 0)
        ASSERT_OK(fsdp_file_write(dir, "x", 1));
    snprintf(below, sizeof below, "%s/model", dir);
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.config = &odd_shape}, t->group, device, &m));
    ASSERT_ERROR(fsdp_model_save(m, below, NULL), FSDP_ERR_NOT_FOUND, "file");
    fsdp_model_close(m);
    fsdp_device_destroy(device);
}

/* Each allocation in turn fails: an error each time, and nothing is left in the folder. */
TEST(memory_that_runs_out_is_an_error)
{
    fsdp_device *device;
    fsdp_model *m;
    char dir[400], parent[300], **names;
    size_t count;
    snprintf(parent, sizeof parent, "%s", fsdp_test_dir(t));
    snprintf(dir, sizeof dir, "%s/saved", parent);
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK; n += n < 50 ? 1 : 17) {
        fsdp_alloc_fail_at(n);
        status = fsdp_model_open(&(fsdp_model_options){.name = golden("t5_v1_1/model")}, NULL,
                                 device, &m);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_ERROR(status, FSDP_ERR_NOMEM, "");
    }
    status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK; n += n < 50 ? 1 : 17) {
        fsdp_alloc_fail_at(n);
        status = fsdp_model_save(m, dir, NULL);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_ERROR(status, FSDP_ERR_NOMEM, "");
        ASSERT_OK(fsdp_directory_list(parent, &names, &count));
        fsdp_free(names);
        ASSERT_INT(count, status == FSDP_OK);
    }
    fsdp_model_close(m);
    fsdp_device_destroy(device);
}
