/* Which parameters decay, compared with transformers' Trainer.get_decay_parameter_names. */
#include "src/base/alloc_testing.h"
#include "tests/optim/shards.h"
#include "tests/test.h"

typedef struct expected {
    const char *path; /* "module.parameter" */
    int ndim;
    bool decays;
    const char *class; /* class of the module; NULL: "Layer" */
} expected;

/* Names of T5, Llama, BERT and GPT-2, and some that only look like norms. */
static const expected names[] = {
    {"shared.weight", 2, true, NULL},
    {"relative_attention_bias.weight", 2, false, NULL},
    {"layer_norm.weight", 1, false, NULL},
    {"final_layer_norm.weight", 2, false, NULL},
    {"input_layernorm.weight", 2, false, NULL},
    {"LayerNorm.weight", 2, false, NULL},
    {"norm.weight", 2, false, NULL},
    {"q_norm.weight", 2, false, NULL},
    {"normal.weight", 2, true, NULL},
    {"abnorm.weight", 2, true, NULL},
    {"subRMSNorm.weight", 2, false, NULL},
    {"ln_f.weight", 1, false, "LayerNorm"},
    {"q_proj.lora_magnitude_vector", 1, true, NULL},
    {"scales.weight", 1, true, NULL},
    {"dense.weight", 2, true, NULL},
    {"dense2.bias", 1, false, NULL},
    {"c_attn.weight", 3, true, NULL},
};

enum {
    N_NAMES = sizeof names / sizeof *names
};

static void add_expected(fsdp_test *t, fsdp_module *root, const expected *e)
{
    char module[64];
    const char *dot = strchr(e->path, '.');
    fsdp_module *child;
    fsdp_parameter *p;
    memcpy(module, e->path, (size_t)(dot - e->path));
    module[dot - e->path] = 0;
    ASSERT_OK(fsdp_module_create(e->class ? e->class : "Layer", &child));
    ASSERT_OK(fsdp_module_add_child(root, module, child));
    ASSERT_OK(fsdp_module_add_parameter(child, dot + 1, e->ndim, (int64_t[]){2, 3, 4},
                                        (fsdp_init){0}, &p));
}

static bool contains(const fsdp_parameter_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return true;
    return false;
}

TEST(biases_and_norms_do_not_decay_and_frozen_parameters_are_in_neither_list)
{
    fsdp_module *root;
    fsdp_parameter_list decay, no_decay;
    fsdp_optimizer *o;
    ASSERT_OK(fsdp_module_create("Model", &root));
    for (int i = 0; i < N_NAMES; i++) {
        add_expected(t, root, &names[i]);
        CHECK_HERE();
    }
    ASSERT_OK(fsdp_decay_parameters(root, &decay, &no_decay));
    ASSERT_INT(decay.n + no_decay.n, N_NAMES);
    for (int i = 0; i < N_NAMES; i++)
        if (!contains(names[i].decays ? &decay : &no_decay, names[i].path))
            FAIL("%s is in the wrong list", names[i].path);
    ASSERT_OK(fsdp_adamw_create(NULL, NULL, &o));
    ASSERT_OK(fsdp_adamw_add_group(o, &decay, NULL));
    ASSERT_OK(fsdp_adamw_add_group(o, &no_decay, NULL));
    fsdp_optimizer_destroy(o);
    fsdp_parameter_set_requires_grad(decay.items[0].parameter, false);
    fsdp_parameter_list_free(&decay);
    fsdp_parameter_list_free(&no_decay);
    for (long n = 1; n < 40; n++) { /* each allocation fails once */
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_decay_parameters(root, &decay, &no_decay);
        fsdp_alloc_fail_at(0);
        ASSERT(status == FSDP_ERR_NOMEM);
    }
    ASSERT_OK(fsdp_decay_parameters(root, &decay, &no_decay));
    ASSERT_INT(decay.n + no_decay.n, N_NAMES - 1);
    ASSERT(!contains(&decay, names[0].path) && !contains(&no_decay, names[0].path));
    fsdp_parameter_list_free(&decay);
    fsdp_parameter_list_free(&no_decay);
    fsdp_module_destroy(root);
}
