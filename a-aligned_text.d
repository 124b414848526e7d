aligned_text.o: src/text/aligned_text.c src/text/aligned_text.h \
 include/fsdp/base.h src/text/utf8.h src/base/alloc.h
src/text/aligned_text.h:
include/fsdp/base.h:
src/text/utf8.h:
src/base/alloc.h:
