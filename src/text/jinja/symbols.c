/* See symbols.h. A scope is processed in two steps. First, the functions visit_...() find its
 * variables, without looking into inner scopes. Then the functions resolve_...() give the names in
 * the scope their slots, and process the inner scopes. */
#include "src/text/jinja/symbols.h"

#include <string.h>

enum {
    MAX_WALK =
        /* largest depth of nested nodes of a tree; each part of a chain like a + b + c counts */
        600
};

/* A function that Jinja2's compiler would make (Note [Scopes of a template] in symbols.h). */
typedef struct function {
    struct function *outer;
    struct slot_owner {
        uint32_t level, name;
    } * slots; /* [n]: the variable of each slot, as the level of its scope and its name */
    size_t n, cap;
} function;

/* A variable of a scope. */
typedef struct symbol {
    uint32_t name; /* index of the name in resolver.names */
    bool stored;   /* true: the scope assigns to the variable; false: it only reads it */
    jinja_load load;
    const jinja_string *text; /* the name */
} symbol;

typedef struct symbols {
    const struct symbols *outer;
    function *function;
    uint32_t level; /* number of scopes that contain this scope; 0: the template */
    symbol *items;  /* [n] */
    size_t n, cap;
} symbols;

typedef struct resolver {
    jinja_machine *machine;
    jinja_dict *names; /* maps each name to its index */
    int depth;
    int loops; /* number of open for blocks in the current function */
    bool has_generation;
} resolver;

/* ---- names and slots ------------------------------------------------------------------------- */

static fsdp_status grow(resolver *r, void *items, size_t *cap, size_t n, size_t item_bytes)
{
    void *old, *grown;
    if (n < *cap)
        return FSDP_OK;
    const size_t more = *cap ? 2 * *cap : 8;
    FSDP_TRY(fsdp_jinja_alloc(r->machine, more * item_bytes, &grown));
    memcpy(&old, items, sizeof old);
    if (n)
        memcpy(grown, old, n * item_bytes);
    memcpy(items, &grown, sizeof grown);
    *cap = more;
    return FSDP_OK;
}

static fsdp_status index_of_name(resolver *r, const jinja_string *text, uint32_t *name)
{
    jinja_value found = fsdp_jinja_dict_find(r->names, text->data, text->bytes), key;
    if (found.kind == JINJA_MISSING) {
        found = jinja_int((int64_t)r->names->n);
        FSDP_TRY(fsdp_jinja_substring(r->machine, text->data, text->bytes, &key));
        FSDP_TRY(fsdp_jinja_dict_set(r->machine, r->names, key, found));
    }
    *name = (uint32_t)found.as.integer;
    return FSDP_OK;
}

/* Set *slot to the slot of the variable `name` of a scope of level `level` in the function `f`. If
 * there is no such slot, add one. Variables with the same name in scopes of the same level share a
 * slot. In Jinja2, they share a Python variable in the same way. */
static fsdp_status slot_of(resolver *r, function *f, uint32_t level, uint32_t name, uint32_t *slot)
{
    FSDP_TRY(fsdp_jinja_charge(r->machine, 1 + f->n / 8));
    for (size_t i = 0; i < f->n; i++) {
        if (f->slots[i].level == level && f->slots[i].name == name) {
            *slot = (uint32_t)i;
            return FSDP_OK;
        }
    }
    FSDP_TRY(grow(r, &f->slots, &f->cap, f->n, sizeof *f->slots));
    f->slots[f->n] = (struct slot_owner){level, name};
    *slot = (uint32_t)f->n++;
    return FSDP_OK;
}

static symbol *own_symbol(const symbols *s, uint32_t name)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->items[i].name == name)
            return &s->items[i];
    return NULL;
}

/* Find the variable `name` in the scope `s` or else in the nearest scope around it. Set *out to the
 * variable's slot, starting from the activation of the function `from`, and return true. Return
 * false if no scope has the variable. */
static bool find_symbol(const symbols *s, const function *from, uint32_t name, jinja_slot *out)
{
    for (; s; s = s->outer) {
        const symbol *found = own_symbol(s, name);
        if (!found)
            continue;
        out->hops = 0;
        out->index = found->load.slot;
        for (const function *f = from; f != s->function; f = f->outer)
            out->hops++;
        return true;
    }
    return false;
}

/* Count the steps of a search through the scope `s` and all scopes around it
 * (fsdp_jinja_charge()). */
static fsdp_status charge_search(resolver *r, const symbols *s)
{
    uint64_t cost = 1;
    for (; s; s = s->outer)
        cost += 1 + s->n / 8;
    return fsdp_jinja_charge(r->machine, cost);
}

static fsdp_status define(resolver *r, symbols *s, const jinja_string *text, uint32_t name,
                          jinja_load load, symbol **out)
{
    symbol *found = own_symbol(s, name);
    FSDP_TRY(slot_of(r, s->function, s->level, name, &load.slot));
    if (!found) {
        FSDP_TRY(grow(r, &s->items, &s->cap, s->n, sizeof *s->items));
        found = &s->items[s->n++];
        *found = (symbol){.name = name, .text = text};
    }
    load.name = text;
    found->load = load;
    *out = found;
    return FSDP_OK;
}

static fsdp_status declare_parameter(resolver *r, symbols *s, const jinja_string *text)
{
    uint32_t name;
    symbol *defined;
    FSDP_TRY(charge_search(r, s));
    FSDP_TRY(index_of_name(r, text, &name));
    FSDP_TRY(define(r, s, text, name, (jinja_load){.action = JINJA_LOAD_PARAMETER}, &defined));
    defined->stored = true;
    return FSDP_OK;
}

static fsdp_status visit_store(resolver *r, symbols *s, const jinja_string *text)
{
    uint32_t name;
    symbol *found;
    FSDP_TRY(charge_search(r, s));
    FSDP_TRY(index_of_name(r, text, &name));
    found = own_symbol(s, name);
    if (!found) {
        jinja_load load = {.action = JINJA_LOAD_UNDEFINED};
        if (find_symbol(s->outer, s->function, name, &load.from))
            load.action = JINJA_LOAD_ALIAS;
        FSDP_TRY(define(r, s, text, name, load, &found));
    }
    found->stored = true;
    return FSDP_OK;
}

static fsdp_status visit_load(resolver *r, symbols *s, const jinja_string *text)
{
    uint32_t name;
    symbol *defined;
    jinja_slot slot;
    FSDP_TRY(charge_search(r, s));
    FSDP_TRY(index_of_name(r, text, &name));
    if (find_symbol(s, s->function, name, &slot))
        return FSDP_OK;
    return define(r, s, text, name, (jinja_load){.action = JINJA_LOAD_RESOLVE}, &defined);
}

/* ---- analysis of a scope --------------------------------------------------------------------- */

static fsdp_status descend(resolver *r, const jinja_node *node)
{
    if (++r->depth > MAX_WALK)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "line %d: nested too deeply", node->line);
    return FSDP_OK;
}

static fsdp_status visit(resolver *r, symbols *s, const jinja_node *node);

static fsdp_status visit_all(resolver *r, symbols *s, const jinja_nodes *nodes)
{
    for (size_t i = 0; i < nodes->n; i++)
        FSDP_TRY(visit(r, s, nodes->items[i]));
    return FSDP_OK;
}

static fsdp_status visit_call(resolver *r, symbols *s, const jinja_call *call)
{
    FSDP_TRY(visit_all(r, s, &call->positional));
    FSDP_TRY(visit_all(r, s, &call->keywords));
    FSDP_TRY(visit(r, s, call->more));
    return visit(r, s, call->more_keywords);
}

static fsdp_status visit_target(resolver *r, symbols *s, const jinja_node *target, bool parameter)
{
    if (target->type == JINJA_NODE_ATTRIBUTE)
        return visit_load(r, s, target->a->name);
    if (target->type == JINJA_NODE_NAME)
        return parameter ? declare_parameter(r, s, target->name) : visit_store(r, s, target->name);
    for (size_t i = 0; i < target->items.n; i++)
        FSDP_TRY(visit_target(r, s, target->items.items[i], parameter));
    return FSDP_OK;
}

static fsdp_status copy_symbols(resolver *r, const symbols *from, symbols *to)
{
    *to = *from;
    to->cap = from->n;
    FSDP_TRY(fsdp_jinja_charge(r->machine, from->n));
    FSDP_TRY(fsdp_jinja_alloc(r->machine, from->n * sizeof *to->items, &to->items));
    if (from->n)
        memcpy(to->items, from->items, from->n * sizeof *to->items);
    return FSDP_OK;
}

/* Add the variables of the three branches of an if block to the scope `s`. A branch may assign to a
 * variable to which the scope has not assigned before. Such a variable begins with its value from
 * outside of the scope, because it keeps this value if another branch runs. Any other variable
 * begins as in the branch. */
static fsdp_status merge_branches(resolver *r, symbols *s, const symbols branches[3])
{
    symbols before;
    FSDP_TRY(copy_symbols(r, s, &before));
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < branches[i].n; k++) {
            const symbol *branch = &branches[i].items[k], *old = own_symbol(&before, branch->name);
            symbol *merged;
            jinja_load load = branch->load;
            FSDP_TRY(charge_search(r, s));
            const bool newly_stored = branch->stored && !(old && old->stored);
            if (newly_stored)
                load.action = find_symbol(s->outer, s->function, branch->name, &load.from)
                                  ? JINJA_LOAD_ALIAS
                                  : JINJA_LOAD_RESOLVE;
            const symbol *own = own_symbol(s, branch->name);
            const bool stored = branch->stored || (own && own->stored);
            if (own && own->stored && !branch->stored)
                /* another branch assigns to this variable, and has been handled already */
                continue;
            FSDP_TRY(define(r, s, branch->text, branch->name, load, &merged));
            merged->stored = stored;
        }
    }
    return FSDP_OK;
}

static fsdp_status visit_if(resolver *r, symbols *s, const jinja_node *node)
{
    symbols branches[3];
    const jinja_nodes *const bodies[] = {&node->body, &node->items, &node->otherwise};
    FSDP_TRY(visit(r, s, node->a));
    for (int i = 0; i < 3; i++) {
        FSDP_TRY(copy_symbols(r, s, &branches[i]));
        FSDP_TRY(visit_all(r, &branches[i], bodies[i]));
    }
    return merge_branches(r, s, branches);
}

static fsdp_status visit_node(resolver *r, symbols *s, const jinja_node *node)
{
    switch (node->type) {
    case JINJA_NODE_NAME:
        return visit_load(r, s, node->name);
    case JINJA_NODE_SET:
        FSDP_TRY(visit(r, s, node->b));
        return visit_target(r, s, node->a, false);
    case JINJA_NODE_SET_BLOCK:
        return visit_target(r, s, node->a, false);
    case JINJA_NODE_FOR:
    case JINJA_NODE_FILTER_BLOCK:
        return visit(r, s, node->b);
    case JINJA_NODE_IF:
        return visit_if(r, s, node);
    case JINJA_NODE_MACRO:
        return visit_store(r, s, node->name);
    case JINJA_NODE_CALL_BLOCK:
        return visit(r, s, node->a);
    case JINJA_NODE_WITH:
        for (size_t i = 1; i < node->items.n; i += 2)
            FSDP_TRY(visit(r, s, node->items.items[i]));
        return FSDP_OK;
    case JINJA_NODE_GENERATION:
        return FSDP_OK;
    case JINJA_NODE_CALL:
    case JINJA_NODE_FILTER:
    case JINJA_NODE_TEST:
        FSDP_TRY(visit(r, s, node->a));
        return visit_call(r, s, node->as.call);
    default:
        FSDP_TRY(visit(r, s, node->a));
        FSDP_TRY(visit(r, s, node->b));
        FSDP_TRY(visit(r, s, node->c));
        return visit_all(r, s, &node->items);
    }
}

/* Visit a node and the nodes below it; `node` may be NULL. */
static fsdp_status visit(resolver *r, symbols *s, const jinja_node *node)
{
    if (!node)
        return FSDP_OK;
    FSDP_TRY(descend(r, node));
    FSDP_TRY(visit_node(r, s, node));
    r->depth--;
    return FSDP_OK;
}

/* ---- which special variables a body uses ----------------------------------------------------- */

/* The state of a search that finds out whether the variable `name` is read before it is assigned
 * to, in the order of the template's text. jinja2's find_undeclared() does the same. */
typedef struct search {
    const char *name;
    bool found, assigned;
    int line_stored; /* line of the last assignment to `name`; 0: none */
    resolver *r;
} search;

static fsdp_status search_node(search *x, const jinja_node *node);

static fsdp_status search_all(search *x, const jinja_nodes *nodes)
{
    for (size_t i = 0; i < nodes->n; i++)
        FSDP_TRY(search_node(x, nodes->items[i]));
    return FSDP_OK;
}

static fsdp_status search_call(search *x, const jinja_call *call)
{
    FSDP_TRY(search_all(x, &call->positional));
    FSDP_TRY(search_all(x, &call->keywords));
    FSDP_TRY(search_node(x, call->more));
    return search_node(x, call->more_keywords);
}

static fsdp_status search_children(search *x, const jinja_node *node)
{
    if (node->type == JINJA_NODE_CONDITION) {
        FSDP_TRY(search_node(x, node->b));
        FSDP_TRY(search_node(x, node->a));
        return search_node(x, node->c);
    }
    FSDP_TRY(search_node(x, node->a));
    FSDP_TRY(search_node(x, node->type == JINJA_NODE_FILTER_BLOCK ? NULL : node->b));
    if (node->type == JINJA_NODE_CALL || node->type == JINJA_NODE_FILTER ||
        node->type == JINJA_NODE_TEST)
        FSDP_TRY(search_call(x, node->as.call));
    if (node->type == JINJA_NODE_MACRO || node->type == JINJA_NODE_CALL_BLOCK ||
        node->type == JINJA_NODE_GENERATION) {
        FSDP_TRY(search_all(x, &node->as.macro->params));
        FSDP_TRY(search_all(x, &node->as.macro->defaults));
        FSDP_TRY(search_all(x, &node->as.macro->body));
    }
    FSDP_TRY(search_all(x, &node->body));
    FSDP_TRY(search_all(x, &node->items));
    FSDP_TRY(search_all(x, &node->otherwise));
    if (node->type == JINJA_NODE_FILTER_BLOCK)
        return search_node(x, node->b);
    return search_node(x, node->c);
}

static fsdp_status search_node(search *x, const jinja_node *node)
{
    if (!node)
        return FSDP_OK;
    FSDP_TRY(fsdp_jinja_charge(x->r->machine, 1));
    FSDP_TRY(descend(x->r, node));
    if (node->type == JINJA_NODE_NAME && fsdp_jinja_string_is(node->name, x->name)) {
        if (!node->as.stores)
            x->found = x->found || !x->assigned;
        else
            x->line_stored = node->line;
        x->assigned = x->assigned || node->as.stores;
    }
    FSDP_TRY(search_children(x, node));
    x->r->depth--;
    return FSDP_OK;
}

static fsdp_status uses(resolver *r, const jinja_nodes *body, const char *name, bool *out)
{
    search x = {.name = name, .r = r};
    FSDP_TRY(search_all(&x, body));
    *out = x.found;
    return FSDP_OK;
}

/* ---- slots of the names in a scope ----------------------------------------------------------- */

static fsdp_status resolve(resolver *r, const symbols *s, jinja_node *node);

static fsdp_status resolve_all(resolver *r, const symbols *s, const jinja_nodes *nodes)
{
    for (size_t i = 0; i < nodes->n; i++)
        FSDP_TRY(resolve(r, s, nodes->items[i]));
    return FSDP_OK;
}

static fsdp_status resolve_call(resolver *r, const symbols *s, jinja_call *call)
{
    FSDP_TRY(resolve_all(r, s, &call->positional));
    FSDP_TRY(resolve_all(r, s, &call->keywords));
    FSDP_TRY(resolve(r, s, call->more));
    return resolve(r, s, call->more_keywords);
}

static fsdp_status resolve_name(resolver *r, const symbols *s, jinja_node *node)
{
    uint32_t name;
    FSDP_TRY(charge_search(r, s));
    FSDP_TRY(index_of_name(r, node->name, &name));
    if (!find_symbol(s, s->function, name, &node->slot))
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "line %d: the scope of '%.*s' is not known",
                          node->line, fsdp_jinja_shown(node->name), node->name->data);
    return FSDP_OK;
}

static symbols inner_symbols(const symbols *outer, function *f)
{
    return (symbols){.outer = outer, .function = f, .level = outer->level + 1};
}

static fsdp_status make_scope(resolver *r, const symbols *s, jinja_scope *scope)
{
    FSDP_TRY(fsdp_jinja_alloc(r->machine, s->n * sizeof *scope->loads, &scope->loads));
    scope->n = s->n;
    for (size_t i = 0; i < s->n; i++)
        scope->loads[i] = s->items[i].load;
    return FSDP_OK;
}

static fsdp_status own_slot(resolver *r, const symbols *s, const jinja_string *text, uint32_t *slot)
{
    uint32_t name;
    FSDP_TRY(index_of_name(r, text, &name));
    const symbol *found = own_symbol(s, name);
    *slot = found ? found->load.slot : UINT32_MAX;
    return FSDP_OK;
}

/* ---- for blocks ------------------------------------------------------------------------------ */

static const jinja_string loop_name = {.data = "loop", .bytes = 4, .chars = 4};

static fsdp_status copy_target(resolver *r, const jinja_node *target, jinja_node **out)
{
    jinja_node *copy;
    FSDP_TRY(fsdp_jinja_alloc(r->machine, sizeof *copy, &copy));
    *copy = *target;
    FSDP_TRY(fsdp_jinja_alloc(r->machine, target->items.n * sizeof *copy->items.items,
                              &copy->items.items));
    for (size_t i = 0; i < target->items.n; i++)
        FSDP_TRY(copy_target(r, target->items.items[i], &copy->items.items[i]));
    *out = copy;
    return FSDP_OK;
}

/* Resolve the names in the test of a for block. The test is a function of its own: a generator that
 * yields the items for which the test is true. */
static fsdp_status resolve_loop_test(resolver *r, const symbols *s, jinja_node *node)
{
    function test = {.outer = s->function};
    symbols inner = inner_symbols(s, &test);
    FSDP_TRY(copy_target(r, node->a, &node->as.loop->test_target));
    FSDP_TRY(visit_target(r, &inner, node->a, true));
    FSDP_TRY(visit(r, &inner, node->c));
    FSDP_TRY(resolve(r, &inner, node->as.loop->test_target));
    FSDP_TRY(resolve(r, &inner, node->c));
    FSDP_TRY(make_scope(r, &inner, &node->as.loop->test_scope));
    node->as.loop->n_test_slots = (uint32_t)test.n;
    return FSDP_OK;
}

static fsdp_status check_loop_is_not_set(resolver *r, const jinja_node *node)
{
    search x = {.name = "loop", .r = r};
    FSDP_TRY(search_node(&x, node));
    if (!x.line_stored)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT, "line %d: a for block cannot assign to 'loop'",
                      x.line_stored);
}

static fsdp_status resolve_for(resolver *r, const symbols *s, jinja_node *node)
{
    jinja_for *loop = node->as.loop;
    symbols inner = inner_symbols(s, s->function), otherwise = inner_symbols(s, s->function);
    if (r->loops == 0)
        FSDP_TRY(check_loop_is_not_set(r, node));
    FSDP_TRY(uses(r, &node->body, "loop", &loop->uses_loop));
    if (loop->uses_loop)
        FSDP_TRY(declare_parameter(r, &inner, &loop_name));
    FSDP_TRY(visit_target(r, &inner, node->a, true));
    FSDP_TRY(visit_all(r, &inner, &node->body));
    FSDP_TRY(resolve(r, s, node->b));
    if (node->c)
        FSDP_TRY(resolve_loop_test(r, s, node));
    if (loop->uses_loop)
        FSDP_TRY(own_slot(r, &inner, &loop_name, &loop->loop_slot));
    FSDP_TRY(resolve(r, &inner, node->a));
    r->loops++;
    FSDP_TRY(resolve_all(r, &inner, &node->body));
    r->loops--;
    FSDP_TRY(make_scope(r, &inner, &loop->body_scope));
    FSDP_TRY(visit_all(r, &otherwise, &node->otherwise));
    FSDP_TRY(resolve_all(r, &otherwise, &node->otherwise));
    return make_scope(r, &otherwise, &loop->otherwise_scope);
}

/* ---- macros ---------------------------------------------------------------------------------- */

static const jinja_string special_names[] = {
    {.data = "caller", .bytes = 6, .chars = 6},
    {.data = "kwargs", .bytes = 6, .chars = 6},
    {.data = "varargs", .bytes = 7, .chars = 7},
};

static int index_of_param(const jinja_macro_node *macro, const jinja_string *name)
{
    for (size_t i = 0; i < macro->params.n; i++)
        if (fsdp_jinja_string_is(macro->params.items[i]->name, name->data))
            return (int)i;
    return -1;
}

/* If the body uses caller, kwargs or varargs, declare these variables in the scope `inner`. */
static fsdp_status declare_specials(resolver *r, symbols *inner, jinja_macro_node *macro, int line)
{
    uint32_t *const slots[] = {&macro->caller_slot, &macro->kwargs_slot, &macro->varargs_slot};
    macro->caller_param = -1;
    for (int i = 0; i < 3; i++) {
        bool used;
        const int param = index_of_param(macro, &special_names[i]);
        *slots[i] = UINT32_MAX;
        if (i == 0)
            macro->caller_param = param;
        FSDP_TRY(uses(r, &macro->body, special_names[i].data, &used));
        if (used && i == 0 && param >= 0 && (size_t)param < macro->params.n - macro->defaults.n)
            return fsdp_error(FSDP_ERR_FORMAT, "line %d: the parameter 'caller' needs a default",
                              line);
        if (!used || param >= 0)
            continue;
        FSDP_TRY(declare_parameter(r, inner, &special_names[i]));
        FSDP_TRY(own_slot(r, inner, &special_names[i], slots[i]));
    }
    return FSDP_OK;
}

static fsdp_status resolve_macro(resolver *r, const symbols *s, jinja_macro_node *macro, int line)
{
    function f = {.outer = s->function};
    symbols inner = inner_symbols(s, &f);
    const int loops = r->loops;
    FSDP_TRY(fsdp_jinja_charge(r->machine, macro->params.n * macro->params.n));
    for (size_t i = 0; i < macro->params.n; i++)
        FSDP_TRY(declare_parameter(r, &inner, macro->params.items[i]->name));
    if (inner.n != macro->params.n)
        return fsdp_error(FSDP_ERR_FORMAT, "line %d: a parameter is repeated", line);
    FSDP_TRY(declare_specials(r, &inner, macro, line));
    FSDP_TRY(visit_all(r, &inner, &macro->defaults));
    FSDP_TRY(visit_all(r, &inner, &macro->body));
    r->loops = 0;
    FSDP_TRY(resolve_all(r, &inner, &macro->defaults));
    FSDP_TRY(resolve_all(r, &inner, &macro->body));
    r->loops = loops;
    FSDP_TRY(fsdp_jinja_alloc(r->machine, macro->params.n * sizeof *macro->param_slots,
                              &macro->param_slots));
    for (size_t i = 0; i < macro->params.n; i++)
        FSDP_TRY(own_slot(r, &inner, macro->params.items[i]->name, &macro->param_slots[i]));
    macro->n_slots = (uint32_t)f.n;
    return make_scope(r, &inner, &macro->scope);
}

/* ---- other blocks ---------------------------------------------------------------------------- */

static fsdp_status resolve_set_block(resolver *r, const symbols *s, jinja_node *node)
{
    symbols inner = inner_symbols(s, s->function);
    FSDP_TRY(visit_all(r, &inner, &node->body));
    FSDP_TRY(visit(r, &inner, node->b));
    FSDP_TRY(resolve_all(r, &inner, &node->body));
    FSDP_TRY(resolve(r, &inner, node->b));
    FSDP_TRY(resolve(r, s, node->a));
    return make_scope(r, &inner, node->as.scope);
}

static fsdp_status resolve_filter_block(resolver *r, const symbols *s, jinja_node *node)
{
    symbols inner = inner_symbols(s, s->function);
    FSDP_TRY(visit_all(r, &inner, &node->body));
    FSDP_TRY(visit(r, &inner, node->b));
    FSDP_TRY(resolve_all(r, &inner, &node->body));
    FSDP_TRY(resolve(r, &inner, node->b));
    return make_scope(r, &inner, node->as.scope);
}

static fsdp_status resolve_with(resolver *r, const symbols *s, jinja_node *node)
{
    symbols inner = inner_symbols(s, s->function);
    for (size_t i = 0; i < node->items.n; i += 2)
        FSDP_TRY(visit_target(r, &inner, node->items.items[i], true));
    FSDP_TRY(visit_all(r, &inner, &node->body));
    for (size_t i = 0; i < node->items.n; i += 2) {
        FSDP_TRY(resolve(r, &inner, node->items.items[i]));
        FSDP_TRY(resolve(r, s, node->items.items[i + 1]));
    }
    FSDP_TRY(resolve_all(r, &inner, &node->body));
    return make_scope(r, &inner, node->as.scope);
}

static fsdp_status resolve_children(resolver *r, const symbols *s, jinja_node *node)
{
    FSDP_TRY(resolve(r, s, node->a));
    FSDP_TRY(resolve(r, s, node->b));
    FSDP_TRY(resolve(r, s, node->c));
    FSDP_TRY(resolve_all(r, s, &node->body));
    FSDP_TRY(resolve_all(r, s, &node->items));
    return resolve_all(r, s, &node->otherwise);
}

static fsdp_status resolve_node(resolver *r, const symbols *s, jinja_node *node)
{
    switch (node->type) {
    case JINJA_NODE_NAME:
        return resolve_name(r, s, node);
    case JINJA_NODE_FOR:
        return resolve_for(r, s, node);
    case JINJA_NODE_MACRO:
        FSDP_TRY(resolve_name(r, s, node));
        return resolve_macro(r, s, node->as.macro, node->line);
    case JINJA_NODE_CALL_BLOCK:
        FSDP_TRY(resolve(r, s, node->a));
        return resolve_macro(r, s, node->as.macro, node->line);
    case JINJA_NODE_GENERATION:
        r->has_generation = true;
        return resolve_macro(r, s, node->as.macro, node->line);
    case JINJA_NODE_SET_BLOCK:
        return resolve_set_block(r, s, node);
    case JINJA_NODE_FILTER_BLOCK:
        return resolve_filter_block(r, s, node);
    case JINJA_NODE_WITH:
        return resolve_with(r, s, node);
    case JINJA_NODE_BREAK:
    case JINJA_NODE_CONTINUE:
        if (r->loops)
            return FSDP_OK;
        return fsdp_error(FSDP_ERR_FORMAT, "line %d: {%% %s %%} outside of a for block", node->line,
                          node->type == JINJA_NODE_BREAK ? "break" : "continue");
    case JINJA_NODE_CALL:
    case JINJA_NODE_FILTER:
    case JINJA_NODE_TEST:
        FSDP_TRY(resolve(r, s, node->a));
        return resolve_call(r, s, node->as.call);
    default:
        return resolve_children(r, s, node);
    }
}

/* Resolve the names in a node and in the nodes below it; `node` may be NULL. */
static fsdp_status resolve(resolver *r, const symbols *s, jinja_node *node)
{
    if (!node)
        return FSDP_OK;
    FSDP_TRY(descend(r, node));
    FSDP_TRY(resolve_node(r, s, node));
    r->depth--;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_resolve(jinja_machine *machine, jinja_tree *tree)
{
    jinja_value names;
    function root = {0};
    symbols s = {.function = &root};
    FSDP_TRY(fsdp_jinja_dict(machine, &names));
    resolver r = {.machine = machine, .names = names.as.dict};
    FSDP_TRY(visit_all(&r, &s, &tree->body));
    FSDP_TRY(resolve_all(&r, &s, &tree->body));
    FSDP_TRY(make_scope(&r, &s, &tree->scope));
    tree->n_slots = (uint32_t)root.n;
    tree->has_generation = r.has_generation;
    return FSDP_OK;
}
