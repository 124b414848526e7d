/* See lit_names.h. */
#include "src/hf/lit_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/base/str.h"

/* ---- names ----------------------------------------------------------------------------------- */

/* `from` is the name of a tensor, and `to` is its name in Hugging Face's model. In the lists for a
 * block, `from` lacks "transformer.h.N." and `to` lacks "model.layers.N.". */
typedef struct renaming {
    const char *from, *to;
} renaming;

/* A tensor that contains query, key and value, without "transformer.h.N." */
typedef struct projections {
    const char *from, *ending; /* ending: "weight" or "bias" */
    bool pairs;                /* see fsdp_row_order */
    bool groups;               /* one group of rows for each key head */
} projections;

typedef struct format_names {
    const char *program;
    const char *sign; /* the end of a name that only this program gives */
    const renaming *outside, *in_block;
    const projections *joined;
} format_names;

static const renaming llama_outside[] = {{"transformer.wte.weight", "model.embed_tokens.weight"},
                                         {"transformer.ln_f.scale", "model.norm.weight"},
                                         {"lm_head.weight", "lm_head.weight"},
                                         {NULL, NULL}};
static const renaming llama_in_block[] = {{"rms_1.scale", "input_layernorm.weight"},
                                          {"rms_2.scale", "post_attention_layernorm.weight"},
                                          {"attn.c_proj.weight", "self_attn.o_proj.weight"},
                                          {"mlp.c_fc1.weight", "mlp.gate_proj.weight"},
                                          {"mlp.c_fc2.weight", "mlp.up_proj.weight"},
                                          {"mlp.c_proj.weight", "mlp.down_proj.weight"},
                                          {NULL, NULL}};
static const projections llama_joined[] = {{"attn.c_attn.weight", "weight", true, false},
                                           {NULL, NULL, false, false}};

static const renaming gpt_outside[] = {{"transformer.wte.weight", "model.embed_tokens.weight"},
                                       {"transformer.ln_f.weight", "model.norm.weight"},
                                       {"lm_head.weight", "lm_head.weight"},
                                       {NULL, NULL}};
static const renaming gpt_in_block[] = {{"norm_1.weight", "input_layernorm.weight"},
                                        {"norm_2.weight", "post_attention_layernorm.weight"},
                                        {"attn.proj.weight", "self_attn.o_proj.weight"},
                                        {"attn.proj.bias", "self_attn.o_proj.bias"},
                                        {"attn.norm_q.weight", "self_attn.q_norm.weight"},
                                        {"attn.norm_k.weight", "self_attn.k_norm.weight"},
                                        {"mlp.fc_1.weight", "mlp.gate_proj.weight"},
                                        {"mlp.fc_1.bias", "mlp.gate_proj.bias"},
                                        {"mlp.fc_2.weight", "mlp.up_proj.weight"},
                                        {"mlp.fc_2.bias", "mlp.up_proj.bias"},
                                        {"mlp.proj.weight", "mlp.down_proj.weight"},
                                        {"mlp.proj.bias", "mlp.down_proj.bias"},
                                        {NULL, NULL}};
static const projections gpt_joined[] = {{"attn.qkv.weight", "weight", false, false},
                                         {"attn.qkv.bias", "bias", false, false},
                                         {"attn.attn.weight", "weight", false, true},
                                         {"attn.attn.bias", "bias", false, true},
                                         {NULL, NULL, false, false}};

static const format_names formats[] = {
    [FSDP_LIT_LLAMA] = {"Lit-LLaMA", ".rms_1.scale", llama_outside, llama_in_block, llama_joined},
    [FSDP_LIT_GPT] = {"LitGPT", ".norm_1.weight", gpt_outside, gpt_in_block, gpt_joined},
};

const char *fsdp_lit_format_name(fsdp_lit_format format)
{
    return format ? formats[format].program : "";
}

fsdp_lit_format fsdp_lit_recognize(const char *const *names, size_t n)
{
    for (int f = FSDP_LIT_LLAMA; f <= FSDP_LIT_GPT; f++)
        for (size_t i = 0; i < n; i++)
            if (strstr(names[i], "transformer.h.") && fsdp_ends_with(names[i], formats[f].sign))
                return (fsdp_lit_format)f;
    return FSDP_LIT_NONE;
}

/* ---- rows ------------------------------------------------------------------------------------ */

int64_t fsdp_row_order_at(const fsdp_row_order *o, int64_t row)
{
    const int64_t head = row / o->head_dim, i = row % o->head_dim, half = o->head_dim / 2;
    const int64_t group = head / o->heads_per_group, within = head % o->heads_per_group;
    const int64_t old = !o->pairs ? i : i < half ? 2 * i : 2 * (i - half) + 1;
    return o->first + group * o->group_rows + within * o->head_dim + old;
}

int64_t fsdp_row_order_run(const fsdp_row_order *o, int64_t row)
{
    const int64_t rows = o->head_dim * o->heads_per_group;
    return o->pairs ? 1 : rows - row % rows;
}

/* ---- translation ----------------------------------------------------------------------------- */

typedef struct translation {
    const char *label;
    const format_names *format;
    const fsdp_lit_model *model;
    const fsdp_lit_tensor *tensors;
    size_t prefix; /* number of bytes to remove from the beginning of each name */
    fsdp_arena *arena;
    fsdp_lit_parts *parts;
} translation;

/* If `name` begins with "transformer.h." and a number, set *number to the length of the number and
 * return the rest of the name after the number and its dot. Otherwise return NULL. */
static const char *rest_in_block(const char *name, int *number)
{
    static const char blocks[] = "transformer.h.";
    const size_t n = sizeof blocks - 1;
    if (strncmp(name, blocks, n) != 0)
        return NULL;
    const size_t digits = strspn(name + n, "0123456789");
    *number = (int)digits;
    return digits && name[n + digits] == '.' ? name + n + digits + 1 : NULL;
}

static fsdp_status add_part(translation *t, size_t from, const char *name, int64_t rows,
                            const fsdp_row_order *order)
{
    const fsdp_lit_tensor *old = &t->tensors[from];
    fsdp_lit_part *part = &t->parts->items[t->parts->n];
    char *copy = fsdp_arena_alloc(t->arena, strlen(name) + 1);
    if (!copy)
        return FSDP_ERR_NOMEM;
    memcpy(copy, name, strlen(name) + 1);
    *part = (fsdp_lit_part){.name = copy, .from = from, .ndim = old->ndim, .order = *order};
    part->shape[0] = rows;
    part->shape[1] = old->ndim > 1 ? old->shape[1] : 0;
    t->parts->n++;
    return FSDP_OK;
}

/* Return true if `rows` is the size of the vocabulary, rounded up as these programs do. */
static bool is_padded(int64_t rows, int64_t vocab_size)
{
    static const int64_t multiples[] = {64, 512};
    for (size_t i = 0; i < FSDP_LENGTH(multiples); i++)
        if (rows > vocab_size && rows % multiples[i] == 0 && rows - vocab_size < multiples[i])
            return true;
    return false;
}

/* Add a tensor whose rows keep their order. */
static fsdp_status add_whole(translation *t, size_t from, const char *name, bool has_vocabulary)
{
    int64_t rows = t->tensors[from].shape[0];
    if (has_vocabulary && is_padded(rows, t->model->vocab_size))
        rows = t->model->vocab_size;
    /* The rows form one head. A tensor without rows has no head; its order is never used. */
    const fsdp_row_order order = {.head_dim = rows ? rows : 1, .heads_per_group = 1};
    return add_part(t, from, name, rows, &order);
}

static fsdp_status check_rows(const translation *t, size_t from)
{
    const fsdp_lit_model *m = t->model;
    const int64_t rows = (m->n_heads + 2 * m->n_kv_heads) * m->head_dim;
    if (t->tensors[from].shape[0] == rows)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: '%s' has %lld rows, but query, key and value of the config.json of %s "
                      "have %lld: (num_attention_heads %lld + 2 * num_key_value_heads %lld) * "
                      "head_dim %lld. Give the config.json of the model that was trained",
                      t->label, t->tensors[from].name, (long long)t->tensors[from].shape[0],
                      m->config, (long long)rows, (long long)m->n_heads, (long long)m->n_kv_heads,
                      (long long)m->head_dim);
}

/* Split the tensor `from` of the block with number `number` [length] into query, key and value. */
static fsdp_status split(translation *t, size_t from, const projections *p, const char *number,
                         int length)
{
    const fsdp_lit_model *m = t->model;
    const int64_t in_group = m->n_heads / m->n_kv_heads;
    const int64_t heads[3] = {m->n_heads, m->n_kv_heads, m->n_kv_heads};
    static const char letters[3] = "qkv";
    FSDP_TRY(check_rows(t, from));
    int64_t before = 0; /* number of heads before those of this part */
    for (int i = 0; i < 3; before += heads[i], i++) {
        char name[128];
        fsdp_row_order order = {.first = before * m->head_dim,
                                .head_dim = m->head_dim,
                                .heads_per_group = heads[i],
                                .pairs = p->pairs && i < 2};
        if (p->groups) {
            order.first = i == 0 ? 0 : (in_group + i - 1) * m->head_dim;
            order.heads_per_group = i == 0 ? in_group : 1;
            order.group_rows = (in_group + 2) * m->head_dim;
        }
        snprintf(name, sizeof name, "model.layers.%.*s.self_attn.%c_proj.%s", length, number,
                 letters[i], p->ending);
        FSDP_TRY(add_part(t, from, name, heads[i] * m->head_dim, &order));
    }
    return FSDP_OK;
}

static fsdp_status refuse_name(const translation *t, const char *name)
{
    const bool is_adapter = strstr(name, "lora_") || strstr(name, "adapter");
    return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' is no tensor of a Llama of %s%s", t->label, name,
                      t->format->program,
                      is_adapter ? ", but one of an adapter: merge the adapter into the weights "
                                   "first, with litgpt merge_lora or the script of the program "
                                   "that trained it"
                                 : ": only models with the layers of Llama, Mistral, Qwen2 or "
                                   "Qwen3 can be read");
}

static fsdp_status add_tensor(translation *t, size_t from)
{
    int length = 0;
    char renamed[128];
    const char *whole = t->tensors[from].name, *name = whole + t->prefix;
    const char *rest = rest_in_block(name, &length);
    if (t->tensors[from].ndim < 1 || t->tensors[from].ndim > 2 || length > 6)
        return refuse_name(t, whole);
    for (const renaming *r = rest ? t->format->in_block : t->format->outside; r->from; r++) {
        if (strcmp(rest ? rest : name, r->from) != 0)
            continue;
        if (!rest)
            return add_whole(t, from, r->to, t->tensors[from].ndim == 2);
        snprintf(renamed, sizeof renamed, "model.layers.%.*s.%s", length, rest - 1 - length, r->to);
        return add_whole(t, from, renamed, false);
    }
    for (const projections *p = t->format->joined; rest && p->from; p++)
        if (strcmp(rest, p->from) == 0)
            return split(t, from, p, rest - 1 - length, length);
    return refuse_name(t, whole);
}

/* Set t->prefix. Return FSDP_ERR_INVALID if some names begin with the prefix and others do not. */
static fsdp_status find_prefix(translation *t, size_t n)
{
    static const char embedding[] = "transformer.wte.weight";
    const char *prefix = "";
    for (size_t i = 0; i < n; i++)
        if (fsdp_ends_with(t->tensors[i].name, embedding)) {
            prefix = t->tensors[i].name;
            t->prefix = strlen(prefix) - (sizeof embedding - 1);
        }
    for (size_t i = 0; i < n; i++)
        if (strncmp(t->tensors[i].name, prefix, t->prefix) != 0)
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: the names of %s begin with '%.*s', but '%s' does not: save the "
                              "model alone",
                              t->label, t->format->program, (int)t->prefix, prefix,
                              t->tensors[i].name);
    return FSDP_OK;
}

static int compare_parts(const void *a, const void *b)
{
    return strcmp(((const fsdp_lit_part *)a)->name, ((const fsdp_lit_part *)b)->name);
}

/* Sort the parts by name, and check that all names differ. */
static fsdp_status sort_parts(const translation *t)
{
    const fsdp_lit_parts *parts = t->parts;
    qsort(parts->items, parts->n, sizeof *parts->items, compare_parts);
    for (size_t i = 1; i < parts->n; i++)
        if (strcmp(parts->items[i - 1].name, parts->items[i].name) == 0)
            return fsdp_error(FSDP_ERR_INVALID, "%s: both '%s' and '%s' contain '%s'", t->label,
                              t->tensors[parts->items[i - 1].from].name,
                              t->tensors[parts->items[i].from].name, parts->items[i].name);
    return FSDP_OK;
}

fsdp_status fsdp_lit_translate(const char *label, fsdp_lit_format format,
                               const fsdp_lit_model *model, const fsdp_lit_tensor *tensors,
                               size_t n, fsdp_arena *arena, fsdp_lit_parts *parts)
{
    FSDP_ASSERT(format != FSDP_LIT_NONE);
    translation t = {.label = label,
                     .format = &formats[format],
                     .model = model,
                     .tensors = tensors,
                     .arena = arena,
                     .parts = parts};
    *parts = (fsdp_lit_parts){.items = fsdp_arena_alloc(arena, 3 * n * sizeof *parts->items)};
    if (!parts->items)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(find_prefix(&t, n));
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(add_tensor(&t, i));
    return sort_parts(&t);
}
