/* The module tree, and fsdp_module_call(), which runs the forward of a module and the hooks before
 * and after it. */
#include <stdio.h>
#include <string.h>

#include "src/autograd/checkpoint.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/nn/adapter.h"
#include "src/nn/float8_weight.h"
#include "src/nn/module.h"
#include "src/nn/quantized.h"
#include "src/tensor/device.h"

enum {
    MAX_PATH_BYTES = 512
};

fsdp_status fsdp_module_create(const char *class_name, fsdp_module **module)
{
    fsdp_module *m = fsdp_calloc(1, sizeof *m);
    if (!m)
        return FSDP_ERR_NOMEM;
    m->class_name = fsdp_strdup(class_name);
    m->name = fsdp_strdup("");
    if (!m->class_name || !m->name) {
        fsdp_module_destroy(m);
        return FSDP_ERR_NOMEM;
    }
    *module = m;
    return FSDP_OK;
}

static void parameter_release(fsdp_parameter *p)
{
    if (!p || --p->refs > 0)
        return;
    if (p->data)
        p->data->sink = NULL; /* a tensor that outlives its parameter is no longer a leaf */
    fsdp_tensor_release(p->sink.grad);
    fsdp_tensor_release(p->data);
    fsdp_tensor_release(p->local);
    fsdp_free(p->extension);
    fsdp_parameter_free_adapter(p);
    fsdp_parameter_clear_float8(p);
    fsdp_quantized_free(p->quantized);
    fsdp_free(p);
}

void fsdp_module_destroy(fsdp_module *m)
{
    if (!m)
        return;
    for (size_t i = m->n_children; i-- > 0;)
        fsdp_module_destroy(m->children[i]);
    for (int i = m->n_hooks; i-- > 0;)
        if (m->hooks_destroy[i])
            m->hooks_destroy[i](m->hooks[i]);
    for (size_t i = m->n_params; i-- > 0;) {
        if (m->params[i].parameter->home == m)
            m->params[i].parameter->home = NULL;
        parameter_release(m->params[i].parameter);
        fsdp_free(m->params[i].name);
    }
    if (m->impl_destroy)
        m->impl_destroy(m->impl);
    fsdp_free(m->params);
    fsdp_free(m->children);
    fsdp_free(m->class_name);
    fsdp_free(m->name);
    fsdp_free(m->extra_repr);
    fsdp_free(m);
}

fsdp_status fsdp_module_set_extra_repr(fsdp_module *m, const char *text)
{
    char *copy = fsdp_strdup(text);
    if (!copy)
        return FSDP_ERR_NOMEM;
    fsdp_free(m->extra_repr);
    m->extra_repr = copy;
    return FSDP_OK;
}

/* Check the name of a new child or parameter of m. No other child or parameter of m may have it. It
 * must not contain dots, because the keys in checkpoints are names joined by dots. */
static fsdp_status check_name(const fsdp_module *m, const char *name)
{
    bool taken = fsdp_module_parameter(m, name) != NULL;
    for (size_t i = 0; i < m->n_children; i++)
        taken |= strcmp(m->children[i]->name, name) == 0;
    if (taken)
        return fsdp_error(FSDP_ERR_INVALID, "%s already has a child or parameter '%s'",
                          m->class_name, name);
    if (!*name || strchr(name, '.'))
        return fsdp_error(FSDP_ERR_INVALID, "'%s' in %s: a name must not be empty or contain a dot",
                          name, m->class_name);
    return FSDP_OK;
}

fsdp_status fsdp_module_add_child(fsdp_module *parent, const char *name, fsdp_module *child)
{
    if (child->parent)
        return fsdp_error(FSDP_ERR_INVALID, "%s '%s' already has a parent", child->class_name,
                          name);
    for (const fsdp_module *m = parent; m; m = m->parent)
        if (m == child)
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s '%s' would be its own child, or a child of a module below it",
                              child->class_name, name);
    fsdp_status status = check_name(parent, name);
    if (status != FSDP_OK) {
        fsdp_module_destroy(child);
        return status;
    }
    char *copy = fsdp_strdup(name);
    if (!copy || !FSDP_GROW(parent->children, parent->cap_children, parent->n_children + 1)) {
        fsdp_free(copy);
        fsdp_module_destroy(child);
        return FSDP_ERR_NOMEM;
    }
    fsdp_free(child->name);
    child->name = copy;
    child->parent = parent;
    parent->children[parent->n_children++] = child;
    return FSDP_OK;
}

fsdp_status fsdp_module_share_parameter(fsdp_module *m, const char *name, fsdp_parameter *p)
{
    FSDP_TRY(check_name(m, name));
    char *copy = fsdp_strdup(name);
    if (!copy || !FSDP_GROW(m->params, m->cap_params, m->n_params + 1)) {
        fsdp_free(copy);
        return FSDP_ERR_NOMEM;
    }
    p->refs++;
    if (!p->home)
        p->home = m;
    p->only_looked_up &= strcmp(m->class_name, "Embedding") == 0;
    m->params[m->n_params].name = copy;
    m->params[m->n_params++].parameter = p;
    return FSDP_OK;
}

fsdp_status fsdp_module_add_parameter(fsdp_module *m, const char *name, int ndim,
                                      const int64_t *shape, fsdp_init init,
                                      fsdp_parameter **parameter)
{
    int64_t numel;
    FSDP_TRY(fsdp_shape_numel(ndim, shape, &numel));
    if (ndim < 1)
        return fsdp_error(FSDP_ERR_INVALID, "parameter %s has no dimension to shard", name);
    fsdp_parameter *p = fsdp_calloc(1, sizeof *p);
    if (!p)
        return FSDP_ERR_NOMEM;
    p->ndim = ndim;
    memcpy(p->shape, shape, (size_t)ndim * sizeof *shape);
    p->init = init;
    p->sink.requires_grad = true;
    p->sink.target = fsdp_grad_sink_default_target;
    p->refs = 1; /* this function's own reference, released below */
    fsdp_status status = fsdp_module_share_parameter(m, name, p);
    parameter_release(p);
    if (status == FSDP_OK && parameter)
        *parameter = p;
    return status;
}

void fsdp_module_set_forward(fsdp_module *m, fsdp_forward_fn *forward, void *impl,
                             void (*destroy)(void *impl))
{
    m->forward = forward;
    m->impl = impl;
    m->impl_destroy = destroy;
}

void *fsdp_module_impl(const fsdp_module *m)
{
    return m->impl;
}

fsdp_status fsdp_module_add_hooks(fsdp_module *m, fsdp_region_hooks *hooks,
                                  void (*destroy)(fsdp_region_hooks *hooks))
{
    if (m->n_hooks == FSDP_MAX_HOOKS)
        return fsdp_error(FSDP_ERR_STATE, "module %s has %d hooks already", m->name, m->n_hooks);
    m->hooks[m->n_hooks] = hooks;
    m->hooks_destroy[m->n_hooks++] = destroy;
    return FSDP_OK;
}

const char *fsdp_module_class(const fsdp_module *m)
{
    return m->class_name;
}

const char *fsdp_module_name(const fsdp_module *m)
{
    return m->name;
}

fsdp_module *fsdp_module_parent(const fsdp_module *m)
{
    return m->parent;
}

int fsdp_module_n_children(const fsdp_module *m)
{
    return (int)m->n_children;
}

fsdp_module *fsdp_module_child(const fsdp_module *m, int i)
{
    return i >= 0 && (size_t)i < m->n_children ? m->children[i] : NULL;
}

fsdp_parameter *fsdp_module_parameter(const fsdp_module *m, const char *name)
{
    for (size_t i = 0; i < m->n_params; i++)
        if (strcmp(m->params[i].name, name) == 0)
            return m->params[i].parameter;
    return NULL;
}

fsdp_module *fsdp_module_find(fsdp_module *m, const char *path)
{
    const char *last = strrchr(path, '.');
    if (last && !last[1])
        return NULL;
    while (m && *path) {
        size_t length = strcspn(path, ".");
        fsdp_module *next = NULL;
        for (size_t i = 0; i < m->n_children && !next; i++)
            if (strlen(m->children[i]->name) == length &&
                strncmp(m->children[i]->name, path, length) == 0)
                next = m->children[i];
        m = next;
        path += length + (path[length] == '.');
    }
    return m;
}

static fsdp_status visit_below(fsdp_module *m, char *path, size_t used, fsdp_module_visit_fn *visit,
                               void *arg)
{
    FSDP_TRY(visit(path, m, arg));
    for (size_t i = 0; i < m->n_children; i++) {
        fsdp_module *child = m->children[i];
        int n = snprintf(path + used, MAX_PATH_BYTES - used, "%s%s", used ? "." : "", child->name);
        if (n < 0 || used + (size_t)n >= MAX_PATH_BYTES)
            return fsdp_error(FSDP_ERR_INVALID, "the name of module %s is too long", path);
        FSDP_TRY(visit_below(child, path, used + (size_t)n, visit, arg));
        path[used] = 0;
    }
    return FSDP_OK;
}

fsdp_status fsdp_module_visit(fsdp_module *m, fsdp_module_visit_fn *visit, void *arg)
{
    char path[MAX_PATH_BYTES] = "";
    return visit_below(m, path, 0, visit, arg);
}

void fsdp_module_set_activation_checkpointing(fsdp_module *m, bool on)
{
    m->checkpointed = on;
    m->checkpointing = (fsdp_activation_checkpointing_options){0};
}

void fsdp_module_set_activation_checkpointing_options(
    fsdp_module *m, const fsdp_activation_checkpointing_options *options)
{
    fsdp_module_set_activation_checkpointing(m, true);
    if (options)
        m->checkpointing = *options;
}

typedef struct checkpoint_walk {
    fsdp_module_check_fn *check_fn;
    void *arg;
    const fsdp_activation_checkpointing_options *options;
    int64_t every, found;
} checkpoint_walk;

static fsdp_status checkpoint_if_asked(const char *path, fsdp_module *m, void *arg)
{
    checkpoint_walk *walk = arg;
    if (walk->check_fn(path, m, walk->arg) && ++walk->found % walk->every == 0)
        fsdp_module_set_activation_checkpointing_options(m, walk->options);
    return FSDP_OK;
}

bool fsdp_check_class(const char *path, const fsdp_module *module, void *class_name)
{
    (void)path;
    return strcmp(module->class_name, class_name) == 0;
}

fsdp_status
fsdp_apply_activation_checkpointing(fsdp_module *root, fsdp_module_check_fn *check_fn, void *arg,
                                    const fsdp_activation_checkpointing_options *options)
{
    int every = options && options->every ? options->every : 1;
    if (every < 0)
        return fsdp_error(FSDP_ERR_INVALID, "activation checkpointing of every %d modules", every);
    checkpoint_walk walk = {.check_fn = check_fn, .arg = arg, .options = options, .every = every};
    return fsdp_module_visit(root, checkpoint_if_asked, &walk);
}

/* --- calling --- */

/* The data of one call of a module's forward. With activation checkpointing, fsdp_checkpoint()
 * keeps a copy of this struct, so that backward can run the forward again. */
typedef struct forward_call {
    fsdp_module *module;
    fsdp_forward_fn *fn;
    /* The function that computes the first input of the module, called with the module `embeds`.
     * NULL: the first input is passed as an argument. */
    fsdp_embed_fn *embed;
    const fsdp_module *embeds;
} forward_call;

typedef fsdp_status forward_hook(void *self, fsdp_scope *s, fsdp_args *args);

static void run_hook(fsdp_scope *s, const fsdp_module *m, const char *what,
                     fsdp_region_hooks *hooks, forward_hook *hook, fsdp_args *args)
{
    if (!hook)
        return;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, what, m->name);
    (void)fsdp_scope_check(s, hook(hooks->self, s, args));
    fsdp_trace_end();
}

/* Cast x with the cast_inputs hooks of the modules on the path from `top` down to m. This includes
 * the hooks of m, but not those of `top`. The hooks of outer modules run before the hooks of inner
 * modules. If a hook casts x, drop x and return the new tensor. Otherwise return x. */
static fsdp_tensor *cast_input(fsdp_scope *s, const fsdp_module *top, const fsdp_module *m,
                               fsdp_tensor *x)
{
    if (!m || m == top)
        return x;
    x = cast_input(s, top, m->parent, x);
    fsdp_args in = {.t = {x}, .n = 1};
    for (int i = 0; i < m->n_hooks; i++)
        run_hook(s, m, "cast_inputs", m->hooks[i], m->hooks[i]->cast_inputs, &in);
    if (in.t[0] != x)
        fsdp_drop(s, x);
    return in.t[0];
}

static void run_call(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const forward_call *call = self;
    fsdp_args made = *in;
    if (!call->embed) {
        call->fn(s, call->module, in, out);
        return;
    }
    made.t[0] = cast_input(s, call->embeds, call->module, call->embed(s, call->embeds));
    call->fn(s, call->module, &made, out);
    fsdp_drop(s, made.t[0]);
}

static void run_fn(fsdp_scope *s, const forward_call *call, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_module *m = call->module;
    const fsdp_checkpoint_options options = {.keeps_results =
                                                 m->checkpointing.kind == FSDP_CHECKPOINT_OP,
                                             .no_early_stop = m->checkpointing.no_early_stop,
                                             .offload = m->checkpointing.offload};
    if (m->checkpointed)
        fsdp_checkpoint(s, &options, run_call, call, sizeof *call, in, out);
    else
        run_call(s, call, in, out);
}

/* Run the hooks and the forward of a call. post_forward hooks run only if the pre_forward hooks and
 * the forward have succeeded. After a failure, cancel() is called for hooks. If there is a tape,
 * the outermost call resets it, and the reset calls cancel() for the hooks of all calls on the
 * tape. Without a tape, each call of a module calls cancel() for the hooks of this module. */
static void run_forward(fsdp_scope *s, const forward_call *call, fsdp_args *in, fsdp_args *out)
{
    const fsdp_module *m = call->module;
    for (int i = 0; i < m->n_hooks && fsdp_scope_ok(s); i++)
        run_hook(s, m, "pre_forward", m->hooks[i], m->hooks[i]->pre_forward, in);
    if (fsdp_scope_ok(s))
        run_fn(s, call, in, out);
    for (int i = m->n_hooks; i-- > 0 && fsdp_scope_ok(s);)
        run_hook(s, m, "post_forward", m->hooks[i], m->hooks[i]->post_forward, out);
    if (fsdp_scope_ok(s) || s->run->tape)
        return; /* with a tape, fsdp_tape_reset() calls cancel() */
    const bool has_backward = fsdp_scope_has_backward(s) || s->run->recomputing;
    for (int i = m->n_hooks; i-- > 0;)
        if (m->hooks[i]->cancel)
            m->hooks[i]->cancel(m->hooks[i]->self, has_backward);
}

static fsdp_args call_in_child_scope(fsdp_scope *s, const forward_call *call, fsdp_args in)
{
    const fsdp_module *m = call->module;
    fsdp_args out = {.n = 0};
    fsdp_scope *child;
    char path[160];
    if (!fsdp_scope_ok(s) || !fsdp_scope_check(s, fsdp_scope_open_child(s, &child)))
        return (fsdp_args){.n = 0};
    if (!call->fn)
        fsdp_scope_error(s, m->class_name, "the module has no forward");
    fsdp_trace_begin(FSDP_TRACE_REST, m->class_name, m->name);
    uint32_t region = fsdp_region_begin(child, m->hooks, m->n_hooks);
    fsdp_region_set_name(child, region, m->class_name, m->name);
    run_forward(child, call, &in, &out);
    if (!fsdp_scope_ok(s))
        fsdp_scope_name_module(s, fsdp_module_path(m, path, sizeof path));
    fsdp_region_end(child, region);
    fsdp_trace_end();
    fsdp_device_trace_memory(s->run->device);
    for (int i = 0; i < out.n; i++)
        out.t[i] = fsdp_scope_keep(s, out.t[i]);
    fsdp_scope_close(child);
    if (fsdp_scope_ok(s))
        return out;
    if (s->run->tape && !s->run->tape->open_region)
        fsdp_tape_reset(s->run->tape);
    return (fsdp_args){.n = 0};
}

fsdp_args fsdp_module_call(fsdp_scope *s, fsdp_module *m, fsdp_forward_fn *fn, fsdp_args in)
{
    return call_in_child_scope(s, &(forward_call){.module = m, .fn = fn ? fn : m->forward}, in);
}

bool fsdp_first_layer_embeds(const fsdp_module *layers, const fsdp_module *embeddings)
{
    return fsdp_module_n_children(layers) > 1 && fsdp_module_child(layers, 0)->checkpointed &&
           (!embeddings || (embeddings->n_hooks == 0 && !embeddings->checkpointed));
}

fsdp_args fsdp_module_call_embedding(fsdp_scope *s, fsdp_module *layer, const fsdp_module *m,
                                     fsdp_embed_fn *embed, fsdp_args in)
{
    return call_in_child_scope(
        s, &(forward_call){.module = layer, .fn = layer->forward, .embed = embed, .embeds = m}, in);
}

fsdp_tensor *fsdp_module_call1(fsdp_scope *s, fsdp_module *m, fsdp_tensor *x)
{
    return fsdp_module_call(s, m, NULL, (fsdp_args){.t = {x}, .n = 1}).t[0];
}
