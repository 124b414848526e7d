/* Training T5 on the meta device asks for the same bytes, by purpose, as on the CPU: what a run
 * will need can be told before a byte is allocated. */
#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "tests/models/t5_case.h"

static const fsdp_t5_config shapes[] = {
    {.vocab_size = 101,
     .d_model = 24,
     .d_ff = 40,
     .d_kv = 5,
     .num_layers = 2,
     .num_decoder_layers = 3,
     .num_heads = 3,
     .relative_attention_num_buckets = 8,
     .relative_attention_max_distance = 20,
     .dropout_rate = 0.1,
     .layer_norm_epsilon = 1e-6,
     .initializer_factor = 1.0,
     .is_gated_act = true,
     .eos_token_id = 1},
    {.vocab_size = 600,
     .d_model = 16,
     .d_ff = 33,
     .d_kv = 8,
     .num_layers = 1,
     .num_decoder_layers = 1,
     .num_heads = 2,
     .relative_attention_num_buckets = 32,
     .relative_attention_max_distance = 128,
     .layer_norm_epsilon = 1e-6,
     .initializer_factor = 1.0,
     .scale_decoder_outputs = true,
     .tie_word_embeddings = true,
     .eos_token_id = 1},
};

enum {
    SOURCE = 700, /* above the head's chunk of 512 rows */
    TARGET = 650
};

static fsdp_status make_batch(fsdp_batch **batch)
{
    int32_t *ids = fsdp_calloc(SOURCE + TARGET, sizeof *ids);
    if (!ids)
        return FSDP_ERR_NOMEM;
    for (int i = 0; i < SOURCE + TARGET; i++)
        ids[i] = i % 90;
    for (int i = 0; i < 30; i++)
        ids[SOURCE + 3 * i] = -100;
    const fsdp_batch_row rows[] = {
        {.source = ids, .labels = ids + SOURCE, .source_len = 100, .labels_len = 600},
        {.source = ids + 100, .labels = ids + SOURCE, .source_len = 600, .labels_len = 50}};
    fsdp_status status = fsdp_batch_create(rows, 2, NULL, batch);
    fsdp_free(ids);
    return status;
}

static fsdp_status shard(fsdp_module *model, fsdp_group *group, fsdp_device *device,
                         const fsdp_fully_shard_options *o)
{
    static const char *const stacks[] = {"encoder.block", "decoder.block"};
    for (int i = 0; i < 2; i++) {
        fsdp_module *blocks = fsdp_module_find(model, stacks[i]);
        for (int b = 0; b < fsdp_module_n_children(blocks); b++)
            FSDP_TRY(fsdp_fully_shard(fsdp_module_child(blocks, b), group, device, o));
    }
    FSDP_TRY(fsdp_fully_shard(model, group, device, o));
    return fsdp_module_init(model, 1);
}

static fsdp_status step(fsdp_device *device, fsdp_tape *tape, fsdp_module *model,
                        const fsdp_batch *batch, int micro_step)
{
    fsdp_scope *s;
    fsdp_scope_options options = {
        .training = true, .batch = batch, .micro_step = micro_step, .n_micro_steps = 2};
    FSDP_TRY(fsdp_scope_open(device, tape, &options, &s));
    fsdp_tensor *loss = fsdp_t5_loss(s, model, 1.0f);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_backward(tape, &loss, NULL, 1);
    fsdp_scope_close(s);
    return status;
}

/* Two steps of two micro-steps with clipping and AdamW. */
static fsdp_status train(fsdp_device *device, fsdp_tape *tape, fsdp_module *model,
                         const fsdp_batch *batch)
{
    fsdp_optimizer *optimizer;
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_adamw_create(model, NULL, &optimizer));
    FSDP_TRY(fsdp_module_parameters(model, false, &list));
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < 4 && status == FSDP_OK; i++) {
        float scale = 1.0f;
        double norm;
        status = step(device, tape, model, batch, i % 2);
        if (i % 2 == 0 || status != FSDP_OK)
            continue;
        status = fsdp_clip_grad_norm(&list, 1.0, NULL, &norm, &scale);
        if (status == FSDP_OK)
            status = fsdp_optimizer_step(optimizer, scale);
        fsdp_optimizer_zero_grad(optimizer);
    }
    fsdp_parameter_list_free(&list);
    fsdp_optimizer_destroy(optimizer);
    return status;
}

static fsdp_status requests(fsdp_group *group, const char *name, const fsdp_t5_config *config,
                            const fsdp_fully_shard_options *o, fsdp_memory_stats *stats)
{
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_module *model;
    fsdp_batch *batch;
    FSDP_TRY(fsdp_device_create(&(fsdp_device_options){.name = name}, &device));
    FSDP_TRY(fsdp_tape_create(&tape));
    FSDP_TRY(fsdp_t5_create(config, &model));
    FSDP_TRY(make_batch(&batch));
    fsdp_status status = shard(model, group, device, o);
    if (status == FSDP_OK)
        status = train(device, tape, model, batch);
    fsdp_device_memory(device, stats);
    fsdp_batch_release(batch);
    fsdp_tape_destroy(tape);
    fsdp_module_destroy(model);
    fsdp_device_destroy(device);
    return status;
}

static void compare(fsdp_test *t)
{
    const fsdp_fully_shard_options options[] = {
        {.reshard_after_forward = FSDP_RESHARD_DEFAULT},
        {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}},
        {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16, .reduce_dtype = FSDP_DTYPE_BF16},
         .reshard_after_forward = FSDP_RESHARD_FALSE}};
    for (int i = 0; i < 6; i += UNDER_SANITIZER ? 2 : 1) {
        fsdp_memory_stats cpu, meta;
        ASSERT_OK(requests(t->group, NULL, &shapes[i / 3], &options[i % 3], &cpu));
        ASSERT_OK(requests(t->group, "meta", &shapes[i / 3], &options[i % 3], &meta));
        for (int tag = 0; tag < FSDP_TAG_COUNT; tag++) {
            if (meta.tag_peak[tag] != cpu.tag_peak[tag])
                FAIL("case %d: %s peaks at %lld on meta, at %lld on the CPU", i,
                     fsdp_tag_name((fsdp_tag)tag), (long long)meta.tag_peak[tag],
                     (long long)cpu.tag_peak[tag]);
            ASSERT_INT(meta.tag_at_peak[tag], cpu.tag_at_peak[tag]);
            ASSERT_INT(meta.tag_allocated[tag], cpu.tag_allocated[tag]);
        }
        ASSERT_INT(meta.allocated_peak, cpu.allocated_peak);
    }
}

TEST_RANKS(t5_asks_for_the_same_bytes_on_meta_at_1_rank, 1)
{
    compare(t);
}

TEST_RANKS(t5_asks_for_the_same_bytes_on_meta_at_2_ranks, 2)
{
    compare(t);
}
