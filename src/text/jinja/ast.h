/* The syntax tree of a template. Nodes belong to the memory of the template.
 *
 * parse.c and parse_expression.c make the tree, symbols.c assigns a slot to each variable, and
 * evaluate.c and render.c run the template. */
#pragma once
#include "src/text/jinja/arithmetic.h"
#include "src/text/jinja/value.h"

/* The comment of each type says what the members of its jinja_node mean. */
typedef enum jinja_node_type {
    /* ---- expressions ---- */
    JINJA_NODE_CONSTANT,  /* constant */
    JINJA_NODE_NAME,      /* name, slot */
    JINJA_NODE_LIST,      /* items */
    JINJA_NODE_TUPLE,     /* items */
    JINJA_NODE_DICT,      /* items: key, value, key, value ... */
    JINJA_NODE_ATTRIBUTE, /* a.name; as a target of `set`: name.attribute */
    JINJA_NODE_ITEM,      /* a[b] */
    JINJA_NODE_SLICE,     /* a[items[0]:items[1]:items[2]]; missing bounds are NULL */
    JINJA_NODE_CALL,      /* a(call) */
    JINJA_NODE_FILTER,    /* a | filter(call); in a filter block, a is NULL */
    JINJA_NODE_TEST,      /* a is test(call) */
    JINJA_NODE_OPERATE,   /* a op b */
    JINJA_NODE_NEGATE,    /* -a */
    JINJA_NODE_PLUS,      /* +a */
    JINJA_NODE_NOT,       /* not a */
    JINJA_NODE_AND,       /* a and b */
    JINJA_NODE_OR,        /* a or b */
    JINJA_NODE_COMPARE,   /* a, then compares[i] with items[i] */
    JINJA_NODE_CONCAT,    /* items, joined by ~ */
    JINJA_NODE_CONDITION, /* a if b else c; c may be NULL */
    /* ---- statements ---- */
    JINJA_NODE_DATA,         /* constant */
    JINJA_NODE_PRINT,        /* a */
    JINJA_NODE_SET,          /* a = b */
    JINJA_NODE_SET_BLOCK,    /* a = body; b: a filter, or NULL */
    JINJA_NODE_FOR,          /* for a in b if c: body, otherwise */
    JINJA_NODE_IF,           /* if a: body; items: the elif nodes; otherwise */
    JINJA_NODE_MACRO,        /* name; macro */
    JINJA_NODE_CALL_BLOCK,   /* a: the call; macro: the body */
    JINJA_NODE_FILTER_BLOCK, /* b: the filter; body */
    JINJA_NODE_WITH,         /* items: target, value, target, value ...; body */
    JINJA_NODE_BREAK,
    JINJA_NODE_CONTINUE,
    JINJA_NODE_GENERATION, /* macro: the body */
} jinja_node_type;

typedef enum jinja_compare {
    JINJA_EQ,
    JINJA_NE,
    JINJA_LT,
    JINJA_LE,
    JINJA_GT,
    JINJA_GE,
    JINJA_IN,
    JINJA_NOT_IN,
} jinja_compare;

/* Where a variable is: in slot `index` of the activation (machine.h) that is `hops` functions
 * further out. */
typedef struct jinja_slot {
    uint32_t hops, index;
} jinja_slot;

typedef enum jinja_load_action {
    JINJA_LOAD_PARAMETER, /* the value comes from a call or a loop */
    JINJA_LOAD_RESOLVE,   /* take the variable that the caller gave, or the global function */
    JINJA_LOAD_ALIAS,     /* copy the variable of the scope around */
    JINJA_LOAD_UNDEFINED, /* no value yet */
} jinja_load_action;

typedef struct jinja_load {
    jinja_load_action action;
    uint32_t slot;            /* the variable's slot in the scope's function */
    jinja_slot from;          /* used by JINJA_LOAD_ALIAS */
    const jinja_string *name; /* used by JINJA_LOAD_RESOLVE */
} jinja_load;

/* What happens to the variables of a scope when the scope begins. When it ends, they lose their
 * values. */
typedef struct jinja_scope {
    jinja_load *loads; /* [n] */
    size_t n;
} jinja_scope;

typedef struct jinja_nodes {
    struct jinja_node **items; /* [n] */
    size_t n, cap;
} jinja_nodes;

/* The arguments of a call. */
typedef struct jinja_call {
    jinja_nodes positional;
    jinja_nodes keywords;             /* the values */
    const jinja_string **names;       /* [keywords.n] */
    struct jinja_node *more;          /* *args, or NULL */
    struct jinja_node *more_keywords; /* **kwargs, or NULL */
} jinja_call;

/* A macro, or the body of a call block or generation block. */
typedef struct jinja_macro_node {
    const jinja_string *name; /* NULL: this is the body of a call block or generation block */
    jinja_nodes params;       /* names */
    jinja_nodes defaults;     /* the defaults of the last defaults.n parameters */
    jinja_nodes body;
    jinja_scope scope;
    uint32_t n_slots;
    uint32_t *param_slots; /* [params.n] */
    /* The slots of the special variables, or UINT32_MAX if the body does not use them. */
    uint32_t caller_slot, kwargs_slot, varargs_slot;
    int caller_param; /* the index of a parameter that is called `caller`, or -1 */
} jinja_macro_node;

/* The parts of a for block beside its target and its iterable. */
typedef struct jinja_for {
    jinja_scope body_scope, otherwise_scope, test_scope;
    bool uses_loop;
    uint32_t loop_slot;             /* if uses_loop */
    struct jinja_node *test_target; /* a copy of the target whose slots are those of the test */
    uint32_t n_test_slots;          /* slots of the test, which is a function of its own */
} jinja_for;

typedef struct jinja_node {
    jinja_node_type type;
    int line;
    jinja_value constant;
    const jinja_string *name;
    jinja_slot slot;
    struct jinja_node *a, *b, *c;
    jinja_nodes items, body, otherwise;
    union {
        jinja_operator op;
        jinja_compare *compares; /* [items.n] */
        jinja_call *call;
        jinja_macro_node *macro;
        jinja_for *loop;
        jinja_scope *scope; /* used by JINJA_NODE_SET_BLOCK, FILTER_BLOCK and WITH */
        bool stores;        /* used by JINJA_NODE_NAME: it is assigned to, not read */
    } as;
    union {
        const struct jinja_filter *filter; /* NULL: no filter with this name exists */
        const struct jinja_test *test;
    } function;
} jinja_node;

typedef struct jinja_tree {
    jinja_nodes body;
    jinja_scope scope;
    uint32_t n_slots;
    bool has_generation; /* there is a {% generation %} block */
} jinja_tree;
