/* Models are found, loaded and saved: a saved folder loads with the same bits, and bad folders are
 * refused with a message that says what is wrong, before anything changes. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/models/model_type.h"
#include "src/nn/module.h"
#include "src/pretrained/model.h"
#include "src/pretrained/text_prefix.h"
#include "tests/elements.h"
#include "tests/test.h"
#include "tests/train/odd_models.h"

static const char *golden(const char *name)
{
    static _Thread_local char path[600];
    char relative[300];
    snprintf(relative, sizeof relative, "golden/%s", name);
    snprintf(path, sizeof path, "%s", fsdp_test_path(relative));
    return path;
}

/* A folder of the test whose path all ranks know: rank 0 makes it and sends it to the others. */
static void shared_dir(fsdp_test *t, const char *name, char path[300])
{
    if (t->rank == 0)
        snprintf(path, 300, "%s/%s", fsdp_test_dir(t), name);
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, path, 300, 0));
}

/* --- same bits --- */

/* Every gathered parameter of `a` equals that of `b` to the last bit. */
static void assert_equal_modules(fsdp_test *t, fsdp_module *a, fsdp_module *b)
{
    fsdp_parameter_list x, y;
    ASSERT_OK(fsdp_module_parameters(a, false, &x));
    ASSERT_OK(fsdp_module_parameters(b, false, &y));
    ASSERT_INT(x.n, y.n);
    for (size_t i = 0; i < x.n; i++) {
        fsdp_tensor *p, *q;
        ASSERT_STR(x.items[i].name, y.items[i].name);
        ASSERT_OK(fsdp_full_tensor(x.items[i].parameter->local, &p));
        ASSERT_OK(fsdp_full_tensor(y.items[i].parameter->local, &q));
        size_t bytes = (size_t)fsdp_tensor_numel(p) * sizeof(float);
        ASSERT_INT(fsdp_tensor_numel(p), fsdp_tensor_numel(q));
        if (memcmp(elements_of(p), elements_of(q), bytes) != 0)
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
    ASSERT_INT(second->info.tie_word_embeddings, first->info.tie_word_embeddings);
    if (first->config.type == &fsdp_t5_type)
        ASSERT_INT(second->config.t5.scale_decoder_outputs, first->config.t5.scale_decoder_outputs);
    assert_equal_modules(t, first->module, second->module);
    fsdp_model_close(second);
    fsdp_model_close(first);
    fsdp_device_destroy(device);
    if (t->group)
        ASSERT_OK(fsdp_barrier(t->group));
    if (t->rank == 0)
        ASSERT_OK(fsdp_tree_remove(dir));
}

static void check_round_trips(fsdp_test *t)
{
    static const char *const names[] = {"t5_v1_0/model", "t5_v1_1/model"};
    for (int i = 0; i < 2; i++) {
        check_round_trip(t, &(fsdp_model_options){.name = golden(names[i])}, NULL);
        CHECK_HERE();
    }
    for (const fsdp_model_config *const *c = odd_models; *c; c++) {
        fsdp_model_options drawn = {.config = *c, .seed = 3};
        check_round_trip(t, &drawn, NULL);
        CHECK_HERE();
        check_round_trip(t, &drawn, &(fsdp_model_save_options){.max_shard_bytes = 6000});
        CHECK_HERE();
        /* a T5 that is tied but not scaled: only transformers 5 recognizes it, by an lm_head equal
         * to the embedding */
        fsdp_model_config tied = **c;
        if (!tied.type->set_tied)
            continue;
        tied.type->set_tied(&tied, true);
        check_round_trip(t, &(fsdp_model_options){.config = &tied}, NULL);
        CHECK_HERE();
    }
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

/* Saving gathers one parameter at a time. Its peak is the largest parameter, with a row of padding
 * for each rank, and its copy in the dtype of the file. */
TEST_RANKS(saving_never_holds_more_than_the_largest_parameter, 3)
{
    fsdp_model_config config = odd_t5;
    config.t5.vocab_size = 1000;
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
    ASSERT(stats.tag_peak[FSDP_TAG_COMM] >= 1000 * 24 * 4);
    ASSERT(stats.tag_peak[FSDP_TAG_COMM] <= (1000 + 3) * 24 * 4 + 64);
    ASSERT_INT(stats.tag_allocated[FSDP_TAG_COMM], 0);
    fsdp_model_close(m);
    fsdp_device_destroy(device);
}

/* A second save with fewer files leaves no file of the first that would be read instead: neither
 * weights nor another tokenizer's files. */
TEST(files_of_an_earlier_save_do_not_stay)
{
    fsdp_device *device;
    fsdp_model *m;
    char dir[300], tokenizer[300], stray[400];
    shared_dir(t, "twice", dir);
    shared_dir(t, "tokenizer", tokenizer);
    ASSERT_OK(fsdp_directory_make(tokenizer));
    snprintf(stray, sizeof stray, "%s/special_tokens_map.json", tokenizer);
    ASSERT_OK(fsdp_file_write(stray, "{}", 2));
    snprintf(stray, sizeof stray, "%s/spiece.model", tokenizer);
    ASSERT_OK(fsdp_file_write(stray, "old", 3));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.config = &odd_t5}, NULL, device, &m));
    ASSERT_OK(fsdp_model_save(
        m, dir, &(fsdp_model_save_options){.max_shard_bytes = 6000, .tokenizer = tokenizer}));
    snprintf(stray, sizeof stray, "%s/special_tokens_map.json", dir);
    ASSERT(fsdp_path_is_file(stray));
    snprintf(stray, sizeof stray, "%s/notes.txt", dir);
    ASSERT_OK(fsdp_file_write(stray, "kept", 4));
    ASSERT_ERROR(fsdp_model_save(m, dir, NULL), FSDP_ERR_INVALID, "twice");
    snprintf(stray, sizeof stray, "%s/other.model", tokenizer);
    ASSERT_OK(fsdp_file_write(stray, "new", 3));
    ASSERT_OK(
        fsdp_model_save(m, dir, &(fsdp_model_save_options){.overwrite = true, .tokenizer = stray}));
    char **names;
    size_t count;
    ASSERT_OK(fsdp_directory_list(dir, &names, &count));
    ASSERT_INT(count, 5);
    ASSERT_STR(names[0], "config.json");
    ASSERT_STR(names[1], "generation_config.json");
    ASSERT_STR(names[2], "model.safetensors");
    ASSERT_STR(names[3], "notes.txt");
    ASSERT_STR(names[4], "spiece.model");
    fsdp_free(names);
    /* A tokenizer given by its model file comes with the files next to it, here from the same
     * folder. */
    snprintf(stray, sizeof stray, "%s/added_tokens.json", dir);
    ASSERT_OK(fsdp_file_write(stray, "{}", 2));
    snprintf(stray, sizeof stray, "%s/spiece.model", dir);
    ASSERT_OK(
        fsdp_model_save(m, dir, &(fsdp_model_save_options){.overwrite = true, .tokenizer = stray}));
    ASSERT_OK(fsdp_directory_list(dir, &names, &count));
    ASSERT_INT(count, 6);
    ASSERT_STR(names[0], "added_tokens.json");
    fsdp_free(names);
    /* If the new model has no tokenizer, one that was put there is kept. Files of other formats
     * that would be a second model are removed; others with similar names are kept. */
    static const char *const files[] = {"pytorch_model-00001-of-00002.bin",
                                        "model.fp16.safetensors", "pytorch_model.bin.index.json",
                                        "model-card.bin", "model-00009-of-00011.safetensors"};
    for (size_t i = 0; i < FSDP_LENGTH(files); i++) {
        snprintf(stray, sizeof stray, "%s/%s", dir, files[i]);
        ASSERT_OK(fsdp_file_write(stray, "1", 1));
    }
    ASSERT_OK(fsdp_model_save(m, dir, &(fsdp_model_save_options){.overwrite = true}));
    for (size_t i = 0; i < FSDP_LENGTH(files); i++) {
        snprintf(stray, sizeof stray, "%s/%s", dir, files[i]);
        if (fsdp_path_is_file(stray) != (i % 2 == 1))
            FAIL("%s", stray);
    }
    snprintf(stray, sizeof stray, "%s/spiece.model", dir);
    ASSERT(fsdp_path_is_file(stray));
    /* A checkpoint would be read instead of the model. */
    snprintf(stray, sizeof stray, "%s/.metadata", dir);
    ASSERT_OK(fsdp_file_write(stray, "1", 1));
    ASSERT_ERROR(fsdp_model_save(m, dir, &(fsdp_model_save_options){.overwrite = true}),
                 FSDP_ERR_INVALID, "torch.distributed.checkpoint");
    ASSERT(fsdp_path_is_file(stray));
    fsdp_model_close(m);
    fsdp_device_destroy(device);
}

/* --- content of a saved folder --- */

/* Save `config` with drawn weights to *dir, as bfloat16. */
static void save_drawn(fsdp_test *t, fsdp_device *device, const fsdp_model_config *config,
                       char dir[300])
{
    fsdp_model *m;
    shared_dir(t, "saved", dir);
    ASSERT_OK(fsdp_tree_remove(dir));
    ASSERT_OK(
        fsdp_model_open(&(fsdp_model_options){.config = config, .seed = 2}, NULL, device, &m));
    ASSERT_OK(fsdp_model_save(m, dir, &(fsdp_model_save_options){.dtype = FSDP_DTYPE_BF16}));
    fsdp_model_close(m);
}

static void check_saved_json(fsdp_test *t, const char *dir, const fsdp_model_config *config)
{
    const fsdp_model_info info = fsdp_model_config_info(config);
    char path[400];
    const char *text;
    fsdp_json *doc;
    fsdp_json_node list;
    snprintf(path, sizeof path, "%s/config.json", dir);
    ASSERT_OK(fsdp_json_read(path, &doc));
    ASSERT_OK(fsdp_json_get_array(fsdp_json_root(doc), "architectures", &list));
    ASSERT_INT(fsdp_json_len(list), 1);
    ASSERT_OK(fsdp_json_get_str(fsdp_json_at(list, 0), NULL, &text));
    ASSERT_STR(text, info.class_name);
    ASSERT_OK(fsdp_json_get_str(fsdp_json_root(doc), "dtype", &text));
    ASSERT_STR(text, "bfloat16");
    fsdp_json_destroy(doc);
    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    ASSERT_INT(fsdp_path_is_file(path), info.format.task != FSDP_TASK_CLASSIFICATION);
}

TEST(a_saved_folder_says_what_it_holds)
{
    fsdp_device *device;
    fsdp_checkpoint_reader *reader;
    char dir[300];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (const fsdp_model_config *const *c = odd_models; *c; c++) {
        save_drawn(t, device, *c, dir);
        CHECK_HERE();
        check_saved_json(t, dir, *c);
        CHECK_HERE();
        ASSERT_OK(fsdp_checkpoint_open(dir, &reader));
        for (size_t i = 0; i < fsdp_checkpoint_count(reader); i++)
            ASSERT_STR(fsdp_checkpoint_at(reader, i)->dtype_name, "BF16");
        fsdp_checkpoint_close(reader);
    }
    fsdp_device_destroy(device);
}

/* Check that the config.json of `dir` has the prefix `want` (NULL: no such key) and still has a key
 * that this program does not know. */
static void check_prefix(fsdp_test *t, const char *dir, const char *want)
{
    char path[400];
    const char *text;
    fsdp_json *doc;
    snprintf(path, sizeof path, "%s/config.json", dir);
    ASSERT_OK(fsdp_json_read(path, &doc));
    ASSERT_OK(fsdp_json_opt_str(fsdp_json_root(doc), "prefix", NULL, &text));
    ASSERT_INT(!text, !want);
    if (want)
        ASSERT_STR(text, want);
    ASSERT_OK(fsdp_json_get_str(fsdp_json_root(doc), "of_another_program", &text));
    ASSERT_STR(text, "kept");
    fsdp_json_destroy(doc);
}

/* Set keys of the config.json of `dir`: one of another program, and `prefix` to `json`. */
static void set_prefix(fsdp_test *t, const char *dir, const char *json)
{
    char path[400], text[200];
    fsdp_json *doc, *value;
    snprintf(path, sizeof path, "%s/config.json", dir);
    snprintf(text, sizeof text, "{\"prefix\": %s}", json);
    ASSERT_OK(fsdp_json_read(path, &doc));
    ASSERT_OK(fsdp_json_parse("prefix", 1, text, strlen(text), &value));
    fsdp_json_set_shared(fsdp_json_root(doc), "prefix",
                         fsdp_json_find(fsdp_json_root(value), "prefix"));
    fsdp_json_set_str(fsdp_json_root(doc), "of_another_program", "kept");
    ASSERT_OK(fsdp_json_write(doc, FSDP_JSON_PRETTY, path));
    fsdp_json_destroy(value);
    fsdp_json_destroy(doc);
}

/* Open the model in `dir`, whose prefix is `then`, and save it with the prefix `now`. */
static void save_again(fsdp_test *t, fsdp_device *device, const char *dir, const char *then,
                       const char *now)
{
    fsdp_model *m;
    ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.name = dir}, NULL, device, &m));
    ASSERT_INT(!m->text_prefix, !then);
    if (then)
        ASSERT_STR(m->text_prefix, then);
    ASSERT_OK(
        fsdp_model_save(m, dir, &(fsdp_model_save_options){.overwrite = true, .text_prefix = now}));
    fsdp_model_close(m);
}

TEST(config_json_has_the_prefix_of_texts)
{
    fsdp_device *device;
    fsdp_model *m;
    char dir[300];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    save_drawn(t, device, &odd_t5, dir);
    CHECK_HERE();
    set_prefix(t, dir, "null"); /* as old versions of transformers write it */
    save_again(t, device, dir, NULL, "first: ");
    CHECK_HERE();
    check_prefix(t, dir, "first: ");
    save_again(t, device, dir, "first: ", NULL); /* it stays */
    CHECK_HERE();
    check_prefix(t, dir, "first: ");
    save_again(t, device, dir, "first: ", "");
    CHECK_HERE();
    check_prefix(t, dir, "");
    save_again(t, device, dir, "", "\"\xc3\xa4\": ");
    CHECK_HERE();
    check_prefix(t, dir, "\"\xc3\xa4\": ");
    set_prefix(t, dir, "[1]");
    ASSERT_ERROR(fsdp_model_open(&(fsdp_model_options){.name = dir}, NULL, device, &m),
                 FSDP_ERR_FORMAT, "config.json: prefix");
    /* Models of other tasks have no such prefix. */
    save_drawn(t, device, &odd_llama, dir);
    CHECK_HERE();
    set_prefix(t, dir, "[1]");
    save_again(t, device, dir, NULL, "no: ");
    CHECK_HERE();
    fsdp_device_destroy(device);
}

TEST(a_prefix_that_config_json_cannot_store_is_refused)
{
    ASSERT_OK(fsdp_text_prefix_check(""));
    ASSERT_OK(fsdp_text_prefix_check("\xc3\xa4: "));
    ASSERT_ERROR(fsdp_text_prefix_check("a\xe4: "), FSDP_ERR_INVALID,
                 "--task-prefix: byte 2 is not UTF-8");
}

/* Neither a file with settings that cannot be used nor one that was cut off. */
TEST(a_bad_generation_config_does_not_keep_a_model_from_being_saved)
{
    static const char *const texts[] = {"{\"temperature\":0.0,\"pad_token_id\":-1}", "{\"tempera"};
    fsdp_device *device;
    fsdp_model *m;
    char dir[300], path[400], again[320];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < FSDP_LENGTH(texts); i++) {
        save_drawn(t, device, &odd_t5, dir);
        CHECK_HERE();
        snprintf(path, sizeof path, "%s/generation_config.json", dir);
        snprintf(again, sizeof again, "%s/again", dir);
        ASSERT_OK(fsdp_file_write(path, texts[i], strlen(texts[i])));
        ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.name = dir}, NULL, device, &m));
        ASSERT_OK(fsdp_model_save(m, again, NULL));
        fsdp_model_close(m);
        snprintf(path, sizeof path, "%s/generation_config.json", again);
        ASSERT(fsdp_path_is_file(path));
    }
    fsdp_device_destroy(device);
}

/* transformers stores a tied head under the first of its names, the embedding's. */
TEST(a_tied_head_is_saved_under_the_embeddings_name_alone)
{
    fsdp_device *device;
    fsdp_checkpoint_reader *reader;
    char dir[300];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (const fsdp_model_config *const *c = odd_models; *c; c++) {
        fsdp_model_config tied = **c;
        const fsdp_model_type *type = tied.type;
        if (!type->head)
            continue;
        type->set_tied(&tied, true);
        if (type == &fsdp_t5_type)
            tied.t5.scale_decoder_outputs = true; /* otherwise transformers 4 needs the head */
        save_drawn(t, device, &tied, dir);
        CHECK_HERE();
        ASSERT_OK(fsdp_checkpoint_open(dir, &reader));
        ASSERT(!fsdp_checkpoint_find(reader, type->head));
        ASSERT(fsdp_checkpoint_find(reader, type->embeddings[0]));
        for (int i = 1; type->embeddings[i]; i++)
            ASSERT(!fsdp_checkpoint_find(reader, type->embeddings[i]));
        fsdp_checkpoint_close(reader);
    }
    fsdp_device_destroy(device);
}

/* --- tied or not --- */

/* Replace config.json in `dir`. */
static void write_config(fsdp_test *t, const char *dir, const fsdp_model_config *config, bool own)
{
    char path[400];
    snprintf(path, sizeof path, "%s/config.json", dir);
    ASSERT_OK(fsdp_model_config_write(config, own, FSDP_DTYPE_F32, NULL, path));
}

/* Replace `from` by `to`, which has the same length, once in `path`. */
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

typedef struct head_case {
    bool weights_tied;  /* the model that was saved */
    bool both_names;    /* the file also has the head, although it is tied */
    const char *hidden; /* a name that is missing in the file; NULL: none */
    bool says_tied;     /* in config.json */
    bool tied;          /* the expected result */
    const char *error;  /* NULL: none */
} head_case;

static void check_head(fsdp_test *t, fsdp_device *device, const head_case *h)
{
    const fsdp_model_type *type = odd_llama.type;
    fsdp_model_config saved = odd_llama, said = odd_llama;
    fsdp_model *first, *second;
    char dir[300];
    shared_dir(t, "head", dir);
    type->set_tied(&saved, h->weights_tied);
    type->set_tied(&said, h->says_tied);
    ASSERT_OK(fsdp_directory_make(dir));
    ASSERT_OK(
        fsdp_model_open(&(fsdp_model_options){.config = &saved, .seed = 2}, NULL, device, &first));
    ASSERT_OK(
        fsdp_module_save(first->module, dir, NULL,
                         &(fsdp_save_options){.also_as = h->both_names ? "lm_head.weight" : NULL}));
    write_config(t, dir, &said, !h->says_tied);
    CHECK_HERE();
    if (h->hidden)
        patch(t, dir, "model.safetensors", h->hidden, "hidden");
    CHECK_HERE();
    fsdp_status status = fsdp_model_open(&(fsdp_model_options){.name = dir}, NULL, device, &second);
    if (h->error) {
        ASSERT_ERROR(status, FSDP_ERR_NOT_FOUND, h->error);
    } else {
        ASSERT_OK(status);
        ASSERT_INT(second->info.tie_word_embeddings, h->tied);
        if (h->tied == h->weights_tied)
            assert_equal_modules(t, first->module, second->module);
        fsdp_model_close(second);
    }
    fsdp_model_close(first);
    ASSERT_OK(fsdp_tree_remove(dir));
}

/* For Llama, config.json decides unless the weights differ. */
TEST(a_head_is_tied_if_the_config_says_so_and_the_weights_do_not_differ)
{
    static const head_case cases[] = {
        {.weights_tied = true, .says_tied = true, .tied = true},
        {.weights_tied = true, .both_names = true, .says_tied = true, .tied = true},
        /* either name is enough */
        {true, true, "embed_", true, true, NULL},
        {.weights_tied = false, .says_tied = true, .tied = false},
        {.weights_tied = false, .says_tied = false, .tied = false},
        {.weights_tied = true, .both_names = true, .says_tied = false, .tied = false},
        {.weights_tied = true,
         .says_tied = false,
         .error = "there is no tensor 'lm_head.weight', and since tie_word_embeddings in "
                  "config.json is false"},
    };
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        check_head(t, device, &cases[i]);
        CHECK_HERE();
    }
    fsdp_device_destroy(device);
}

/* A file of the model without its head, as LlamaModel saves it: names have no prefix. */
TEST(a_bare_models_weights_fill_a_model_with_a_tied_head)
{
    fsdp_model_config config = odd_llama;
    fsdp_device *device;
    fsdp_model *first, *second;
    char dir[300];
    shared_dir(t, "bare", dir);
    config.type->set_tied(&config, true);
    ASSERT_OK(fsdp_directory_make(dir));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(
        fsdp_model_open(&(fsdp_model_options){.config = &config, .seed = 2}, NULL, device, &first));
    ASSERT_OK(fsdp_module_save(fsdp_module_find(first->module, "model"), dir, NULL, NULL));
    write_config(t, dir, &config, false);
    CHECK_HERE();
    ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.name = dir}, NULL, device, &second));
    ASSERT(second->info.tie_word_embeddings);
    assert_equal_modules(t, first->module, second->module);
    fsdp_model_close(second);
    fsdp_model_close(first);
    fsdp_device_destroy(device);
}

/* --- a fresh head --- */

/* An encoder's weights have no classifier; it is drawn as --from-config would have drawn it. */
TEST(a_pretrained_encoder_gets_a_fresh_classifier)
{
    fsdp_device *device;
    fsdp_model *first, *second, *drawn;
    char dir[300];
    shared_dir(t, "encoder", dir);
    ASSERT_OK(fsdp_directory_make(dir));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.config = &odd_bert, .seed = 2}, NULL, device,
                              &first));
    ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.config = &odd_bert, .seed = 5}, NULL, device,
                              &drawn));
    ASSERT_OK(fsdp_module_save(fsdp_module_find(first->module, "bert"), dir, NULL, NULL));
    write_config(t, dir, &odd_bert, false);
    CHECK_HERE();
    ASSERT_OK(
        fsdp_model_open(&(fsdp_model_options){.name = dir, .seed = 5}, NULL, device, &second));
    ASSERT_INT(second->report.n_unexpected, 0);
    ASSERT_INT(second->report.n_fresh, 2);
    ASSERT_STR(second->report.fresh[0], "classifier.weight");
    ASSERT_STR(second->report.fresh[1], "classifier.bias");
    assert_equal_modules(t, fsdp_module_find(second->module, "bert"),
                         fsdp_module_find(first->module, "bert"));
    CHECK_HERE();
    assert_equal_modules(t, fsdp_module_find(second->module, "classifier"),
                         fsdp_module_find(drawn->module, "classifier"));
    fsdp_model_close(second);
    fsdp_model_close(drawn);
    fsdp_model_close(first);
    fsdp_device_destroy(device);
}

/* --- bad folders --- */

/* Copies a golden model to *dir; the caller then damages its weights. */
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

/* Only rank 1 sees a bad file. Rank 0 fails too, with rank 1's message. */
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

/* Rank 0 cannot write: every rank fails, and no file is left. */
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
    ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.config = &odd_t5}, t->group, device, &m));
    ASSERT_ERROR(fsdp_model_save(m, below, NULL), FSDP_ERR_NOT_FOUND, "file");
    fsdp_model_close(m);
    fsdp_device_destroy(device);
}

/* Each allocation in turn fails: an error each time, and no file is left in the folder. */
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
        status = fsdp_model_save(m, dir, &(fsdp_model_save_options){.text_prefix = "a: "});
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
