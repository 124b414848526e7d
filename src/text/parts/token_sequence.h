/* The tokens of one text, before the post-processor adds special tokens. */
#pragma once
#include <fsdp/text.h>

typedef struct fsdp_token_place {
    uint32_t begin, end; /* the part of the original text that became this token */
    /* number of white space characters at the beginning and at the end of the token; set only if
     * want_spaces is true */
    uint32_t leading_spaces, trailing_spaces;
} fsdp_token_place;

/* The tokens of one text. Initialize this with {0}, and set want_places and want_spaces
 * afterwards. */
typedef struct fsdp_token_sequence {
    fsdp_token_list ids;
    fsdp_token_place *places; /* [ids.len] if want_places is true, otherwise NULL; owned */
    size_t places_cap;
    bool want_places;
    bool want_spaces;
} fsdp_token_sequence;
