/* Describes units to users: fsdp_unit_get_info(), and the module tree as
 * torch.nn.Module.__repr__ prints it. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <fsdp/tensor.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/fsdp/state.h"
#include "src/nn/quantized.h"

static void add_controls(const fsdp_state *state, fsdp_unit_info *info)
{
    const fsdp_param_group *g = state->param_group;
    const fsdp_state *top = fsdp_outermost_unit(state->module)->fsdp_state;
    info->is_unsharded = g->state == FSDP_STATE_UNSHARDED;
    info->is_prefetched = g->state == FSDP_STATE_GATHERING;
    info->is_held = g->held;
    info->backward_prefetch = top->param_group->context.options.backward_prefetch;
    info->forward_prefetch = top->param_group->context.options.forward_prefetch;
    info->limit_all_gathers = !top->param_group->context.options.no_limit_all_gathers;
    info->n_forward_prefetch = state->forward_prefetch.n;
    info->n_backward_prefetch = state->backward_prefetch.n;
    info->requires_gradient_sync = fsdp_grad_buffer_syncs(&state->param_group->grads);
    info->requires_all_reduce = !g->grads.no_all_reduce;
    info->reshard_after_backward = !state->keeps_after_backward;
    info->unshard_in_backward = !state->param_group->no_unshard_in_backward;
    info->is_last_backward = !state->not_last_backward;
    info->gradient_divide_factor = g->grads.divide_factor;
}

static int64_t own_quantized_numel(const fsdp_param_context *c, const fsdp_parameter *p)
{
    return fsdp_quantized_part_of(p->quantized, fsdp_group_world_size(c->shard_group),
                                  fsdp_group_rank(c->shard_group))
        .n;
}

const fsdp_module *fsdp_unit_of_parameter(const fsdp_parameter *p)
{
    return p->owner ? fsdp_param_of(p)->group->context.module : NULL;
}

fsdp_status fsdp_unit_get_info(const fsdp_module *module, fsdp_unit_info *info)
{
    const fsdp_state *state = module->fsdp_state;
    if (!state)
        return fsdp_error(FSDP_ERR_INVALID, "module '%s' (%s) is no unit", module->name,
                          module->class_name);
    const fsdp_param_group *g = state->param_group;
    *info = (fsdp_unit_info){
        .first_module = state->module,
        .group = g->context.group,
        .replicate_group = g->context.replicate_group,
        .mesh = g->context.options.mesh,
        .mesh_ndim = g->context.options.mesh ? fsdp_device_mesh_ndim(g->context.options.mesh) : 1,
        .mp_policy = g->context.options.mp_policy,
        .reshard_ranks = g->context.options.reshard_after_forward == FSDP_RESHARD_TO_SMALLER
                             ? g->context.options.reshard_ranks
                             : 0,
        .kept_ranks = fsdp_param_context_kept_ranks(&g->context),
        .reshard_after_forward = fsdp_param_group_reshards_after_forward(
            g, fsdp_outermost_unit(state->module) == state->module),
        .no_shard = g->context.options.no_shard,
        .offload = g->context.options.offload_policy.kind,
        .n_parameters = g->n_params,
        .numel = g->numel};
    if (!g->context.options.no_shard)
        info->placements[info->mesh_ndim - 1] = (fsdp_placement){FSDP_SHARD, 0};
    for (size_t i = 0; i < g->n_params; i++) {
        const fsdp_parameter *p = g->params[i].parameter;
        info->local_numel += p->quantized ? own_quantized_numel(&g->context, p)
                                          : fsdp_tensor_numel(g->params[i].local);
        info->frozen_numel += fsdp_parameter_requires_grad(p) ? 0 : fsdp_parameter_numel(p);
    }
    add_controls(state, info);
    return FSDP_OK;
}

/* --- the text of one module, and the comment of a unit --- */

static bool is_class(const fsdp_module *m, const char *name)
{
    return strcmp(m->class_name, name) == 0;
}

static void append_linear(fsdp_str *out, const fsdp_parameter *weight, bool bias)
{
    fsdp_str_printf(out, "in_features=%" PRId64 ", out_features=%" PRId64 ", bias=%s",
                    weight->shape[1], weight->shape[0], bias ? "True" : "False");
}

/* Append what torch's extra_repr() returns for the module. This is module->extra_repr if it is set,
 * and otherwise a text made from the shapes of the module's parameters. */
static void append_extra(fsdp_str *out, const fsdp_module *m)
{
    const fsdp_parameter *weight = fsdp_module_parameter(m, "weight");
    if (m->extra_repr)
        fsdp_str_printf(out, "%s", m->extra_repr);
    if (m->extra_repr || !weight)
        return;
    if (weight->ndim == 1 && (is_class(m, "LayerNorm") || strstr(m->class_name, "RMSNorm")))
        fsdp_str_printf(out, "(%" PRId64 ",)", weight->shape[0]);
    if (weight->ndim != 2)
        return;
    if (is_class(m, "Linear"))
        append_linear(out, weight, fsdp_module_parameter(m, "bias") != NULL);
    else if (is_class(m, "Conv1D"))
        fsdp_str_printf(out, "nf=%" PRId64 ", nx=%" PRId64, weight->shape[1], weight->shape[0]);
    else if (is_class(m, "Embedding"))
        fsdp_str_printf(out, "%" PRId64 ", %" PRId64, weight->shape[0], weight->shape[1]);
    if (is_class(m, "Embedding") && weight->init.has_zero_row)
        fsdp_str_printf(out, ", padding_idx=%" PRId64, weight->init.zero_row);
}

/* Append a comment like "  # bfloat16 of float32, 12 of 24 elements". It begins with param_dtype.
 * master_dtype and reduce_dtype follow if they differ from param_dtype, and output_dtype if it is
 * set. Then come this rank's number of elements, the number of elements of the whole parameters
 * and, if it is not 0, the number of frozen elements. */
static void append_comment(fsdp_str *out, const fsdp_unit_info *info)
{
    const fsdp_mp_policy *mp = &info->mp_policy;
    fsdp_str_printf(out, "  # %s", fsdp_dtype_name(mp->param_dtype));
    if (mp->master_dtype != mp->param_dtype)
        fsdp_str_printf(out, " of %s", fsdp_dtype_name(mp->master_dtype));
    if (mp->reduce_dtype != mp->param_dtype)
        fsdp_str_printf(out, ", reduced in %s", fsdp_dtype_name(mp->reduce_dtype));
    if (mp->set_output_dtype)
        fsdp_str_printf(out, ", returns %s", fsdp_dtype_name(mp->output_dtype));
    fsdp_str_printf(out, ", %" PRId64 " of %" PRId64 " elements", info->local_numel, info->numel);
    if (info->frozen_numel)
        fsdp_str_printf(out, ", %" PRId64 " frozen", info->frozen_numel);
}

/* Append `text` and a newline. Indent every line except the first by two columns. */
static void append_indented(fsdp_str *out, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        n += text[n] == '\n';
        fsdp_str_append(out, text, n);
        text += n;
        if (*text)
            fsdp_str_printf(out, "  ");
    }
    fsdp_str_printf(out, "\n");
}

/* --- the module tree --- */

static void append_module(fsdp_str *out, const fsdp_module *m, fsdp_print_form form);

static char *describe(const fsdp_module *m, fsdp_print_form form)
{
    fsdp_str text = {0};
    append_module(&text, m, form);
    return fsdp_str_take(&text);
}

/* Child `first` has the text `text`. Return the number of children in a row, from child `first` on,
 * that have this text. As in torch, only children of a ModuleList are combined. For other modules,
 * return 1. */
static size_t count_equal(const fsdp_module *m, size_t first, const char *text,
                          fsdp_print_form form)
{
    size_t end = first + 1;
    for (bool equal = is_class(m, "ModuleList"); equal && end < m->n_children; end += equal) {
        char *next = describe(m->children[end], form);
        equal = next && strcmp(next, text) == 0;
        fsdp_free(next);
    }
    return end - first;
}

static void append_children(fsdp_str *out, const fsdp_module *m, fsdp_print_form form)
{
    for (size_t i = 0, n; i < m->n_children && !out->failed; i += n) {
        char *text = describe(m->children[i], form);
        if (!text) {
            out->failed = true;
            return;
        }
        n = count_equal(m, i, text, form);
        if (n == 1)
            fsdp_str_printf(out, "  (%s): ", m->children[i]->name);
        else
            fsdp_str_printf(out, "  (%s-%s): %zu x ", m->children[i]->name,
                            m->children[i + n - 1]->name, n);
        append_indented(out, text);
        fsdp_free(text);
    }
}

/* Append `prefix`, and then "Class(extra)" for a module without children, or "Class(", the children
 * and ")" for a module that has children. `info` describes the unit whose comment ends the first
 * line; NULL: there is no comment. */
static void append_plain(fsdp_str *out, const char *prefix, const fsdp_module *m,
                         const fsdp_unit_info *info, fsdp_print_form form)
{
    fsdp_str_printf(out, "%s%s(", prefix, m->class_name);
    if (!m->n_children) {
        append_extra(out, m);
        fsdp_str_printf(out, ")");
    }
    if (info)
        append_comment(out, info);
    if (!m->n_children)
        return;
    fsdp_str_printf(out, "\n");
    append_children(out, m, form);
    fsdp_str_printf(out, ")");
}

static void append_wrapped(fsdp_str *out, const fsdp_module *m, const fsdp_unit_info *info,
                           fsdp_print_form form)
{
    fsdp_str inner = {0};
    append_plain(&inner, "", m, NULL, form);
    fsdp_str_printf(out, "FullyShardedDataParallel(");
    if (info)
        append_comment(out, info);
    fsdp_str_printf(out, "\n  (_fsdp_wrapped_module): ");
    append_indented(out, inner.data ? inner.data : "");
    fsdp_str_printf(out, ")");
    out->failed |= inner.failed;
    fsdp_str_fini(&inner);
}

static void append_module(fsdp_str *out, const fsdp_module *m, fsdp_print_form form)
{
    fsdp_unit_info info;
    const fsdp_state *state = m->fsdp_state;
    const bool is_unit = state && fsdp_unit_get_info(m, &info) == FSDP_OK;
    /* If a unit has several modules, only the first one gets the comment. */
    const fsdp_unit_info *shown = is_unit && state->module == m ? &info : NULL;
    if (is_unit && form == FSDP_PRINT_FSDP1)
        append_wrapped(out, m, shown, form);
    else
        append_plain(out, is_unit ? "FSDP" : "", m, shown, form);
}

fsdp_status fsdp_module_print(const fsdp_module *module, FILE *out, fsdp_print_form form)
{
    char *text = describe(module, form);
    if (!text)
        return FSDP_ERR_NOMEM;
    const bool written = fprintf(out, "%s\n", text) >= 0 && fflush(out) == 0;
    fsdp_free(text);
    return written ? FSDP_OK
                   : fsdp_error(FSDP_ERR_IO, "printing the module tree: %s", strerror(errno));
}
