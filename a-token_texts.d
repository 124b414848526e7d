token_texts.o: src/text/token_texts.c src/text/token_texts.h \
 src/base/str.h include/fsdp/base.h src/base/alloc.h
src/text/token_texts.h:
src/base/str.h:
include/fsdp/base.h:
src/base/alloc.h:
