/* From a name to a sharded module with values. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/ckpt/hf_dir.h"
#include "src/comm/agree.h"
#include "src/train/model.h"

/* --- tied or not --- */

/* Whether the head is tied is seen in the weights alone: no lm_head.weight, or no embedding beside
 * it, or equal values. */
static bool file_is_tied(const fsdp_checkpoint_reader *reader)
{
    static const char *const embeddings[] = {"shared.weight", "encoder.embed_tokens.weight",
                                             "decoder.embed_tokens.weight"};
    const fsdp_checkpoint_entry *head = fsdp_checkpoint_find(reader, "lm_head.weight");
    const fsdp_checkpoint_entry *shared = NULL;
    for (size_t i = 0; i < sizeof embeddings / sizeof *embeddings && !shared; i++)
        shared = fsdp_checkpoint_find(reader, embeddings[i]);
    if (!head || !shared)
        return true;
    return head->bytes == shared->bytes && strcmp(head->dtype_name, shared->dtype_name) == 0 &&
           memcmp(head->data, shared->data, head->bytes) == 0;
}

/* --- opening --- */

static fsdp_status shard_blocks(fsdp_module *blocks, fsdp_group *group, fsdp_device *device,
                                const fsdp_fully_shard_options *options)
{
    for (int i = 0; i < fsdp_module_n_children(blocks); i++)
        FSDP_TRY(fsdp_fully_shard(fsdp_module_child(blocks, i), group, device, options));
    return FSDP_OK;
}

fsdp_status fsdp_model_shard(fsdp_module *module, fsdp_group *group, fsdp_device *device,
                             const fsdp_fully_shard_options *options)
{
    FSDP_TRY(shard_blocks(fsdp_module_find(module, "encoder.block"), group, device, options));
    FSDP_TRY(shard_blocks(fsdp_module_find(module, "decoder.block"), group, device, options));
    return fsdp_fully_shard(module, group, device, options);
}

/* What needs no peers: folder, configuration, weights' header, module tree. *reader is NULL if the
 * weights are drawn. */
static fsdp_status prepare(const fsdp_model_options *options, fsdp_model *m,
                           fsdp_checkpoint_reader **reader)
{
    if (options->name) {
        FSDP_TRY(fsdp_hf_dir_resolve(options->name, &m->dir));
        FSDP_TRY(fsdp_t5_config_read(m->dir, &m->config));
        if (!options->from_config) {
            FSDP_TRY(fsdp_checkpoint_open(m->dir, reader));
            m->config.tie_word_embeddings = file_is_tied(*reader);
        }
    } else {
        m->config = *options->config;
    }
    if (options->set_dropout)
        m->config.dropout_rate = options->dropout;
    return fsdp_t5_create(&m->config, &m->module);
}

fsdp_status fsdp_model_open(const fsdp_model_options *options, fsdp_group *group,
                            fsdp_device *device, fsdp_model **model)
{
    fsdp_model *m = fsdp_calloc(1, sizeof *m);
    fsdp_checkpoint_reader *reader = NULL;
    fsdp_status status = m ? prepare(options, m, &reader) : FSDP_ERR_NOMEM;
    status = fsdp_agree(group, status);
    if (status == FSDP_OK) {
        m->group = group;
        status = fsdp_agree(group, fsdp_model_shard(m->module, group, device, &options->shard));
    }
    if (status == FSDP_OK)
        status = reader ? fsdp_module_load(m->module, reader, group, &m->report)
                        : fsdp_module_init(m->module, options->seed);
    fsdp_checkpoint_close(reader);
    if (status != FSDP_OK) {
        fsdp_model_close(m);
        return status;
    }
    *model = m;
    return FSDP_OK;
}

void fsdp_model_close(fsdp_model *m)
{
    if (!m)
        return;
    fsdp_load_report_free(&m->report);
    fsdp_module_destroy(m->module);
    fsdp_free(m->dir);
    fsdp_free(m);
}

/* --- holding --- */

typedef struct hold_walk {
    bool on;
} hold_walk;

static fsdp_status hold_unit(const char *path, fsdp_module *module, void *arg)
{
    (void)path;
    const hold_walk *walk = arg;
    if (!fsdp_module_is_unit(module))
        return FSDP_OK;
    return walk->on ? fsdp_unit_unshard(module) : fsdp_unit_reshard(module);
}

fsdp_status fsdp_model_hold_unsharded(const fsdp_model *model, bool on)
{
    hold_walk walk = {.on = on};
    return fsdp_module_visit(model->module, hold_unit, &walk);
}
