/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Userland twin of kernel/pure.h: just enough of the kernel's interfaces, under the kernel's names and with the kernel's meaning, to compile
 * index.c, policy.c and format.c into a unit test.
 *
 * A test is one translation unit: it includes the .c under test, so everything here is static.  It is stricter than the kernel where
 * that is cheap, and aborts:
 *   - on a sleeping allocation, mutex or might_sleep() under a spin lock or rcu_read_lock(), on a lock taken twice or dropped by another thread;
 *   - on unbalanced seqcount writers and rcu_read_unlock(), on kmem_cache_destroy() with objects left.
 * RCU is real: readers are registered per thread, callbacks run after every section that was open has ended.  With one thread and no section
 * open, call_rcu() runs its callback at once, so that ASan sees any later use.  READ_ONCE, WRITE_ONCE and the bit operations are atomic, so that a TSan build
 * reports every access that is not marked.
 *
 * Failing allocations: pure_fail_after = n lets n allocations pass, then fails one; pure_fail_rate = n fails one in n at random;
 * pure_fail_mask says which kind (sleeping, atomic, sleeping without reclaim).  pure_allocated and pure_live count bytes and pieces in use.
 */
#ifndef PURE_USER_H
#define PURE_USER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <linux/types.h>

/* ------------------------------------------------------------------ types, compiler */

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
typedef unsigned int gfp_t;
typedef __u64 sector_t;

#define U8_MAX ((u8)~0u)
#define U16_MAX ((u16)~0u)
#define U32_MAX ((u32)~0u)
#define U64_MAX ((u64)~0ull)
#define S64_MAX ((s64)(U64_MAX >> 1))
#define S64_MIN ((s64)(-S64_MAX - 1))

#ifndef __always_inline
#define __always_inline inline __attribute__((__always_inline__))
#endif
#define noinline __attribute__((__noinline__))
#define __must_check __attribute__((__warn_unused_result__))
#define __maybe_unused __attribute__((__unused__))
#define __packed __attribute__((__packed__))
#define __aligned(x) __attribute__((__aligned__(x)))
#define __read_mostly
#define __ro_after_init
#define __rcu
#define __force
#define __iomem
#define __user
#define __acquires(x)
#define __releases(x)
#define __must_hold(x)
#define __init
#define __exit
#define fallthrough __attribute__((__fallthrough__))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() __asm__ __volatile__("" : : : "memory")
#define prefetch(x) __builtin_prefetch(x)
#define SMP_CACHE_BYTES 64
#define ____cacheline_aligned_in_smp __aligned(SMP_CACHE_BYTES)
#define ____cacheline_aligned __aligned(SMP_CACHE_BYTES)
#define BITS_PER_LONG (8 * (int)sizeof(long))
#define BITS_PER_BYTE 8
#define PAGE_SHIFT 12
#define PAGE_SIZE 4096ul
#define IS_ENABLED(x) 0
#define EXPORT_SYMBOL_GPL(x)

#ifndef static_assert
#define static_assert _Static_assert
#endif
#define BUILD_BUG_ON(c) _Static_assert(!(c), #c)
#define BUILD_BUG_ON_NOT_POWER_OF_2(n) BUILD_BUG_ON((n) == 0 || (((n) & ((n) - 1)) != 0))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#ifndef container_of
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))
#endif
#define sizeof_field(t, f) sizeof(((t *)0)->f)
#define offsetofend(t, f) (offsetof(t, f) + sizeof_field(t, f))
#define struct_size(p, f, n) (sizeof(*(p)) + sizeof((p)->f[0]) * (size_t)(n))
#define array_size(a, b) ((size_t)(a) * (size_t)(b))

static inline void __attribute__((__noreturn__)) pure_die(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, what);
	abort();
}

#define pure_check(c, what) do { if (unlikely(!(c))) pure_die(__FILE__, __LINE__, what); } while (0)

/* A warning is a failure in a test, unless the test expects some: then they are counted. */
static bool pure_warn_expected;
static unsigned long pure_warnings;

static inline bool pure_warn(bool c, const char *file, int line, const char *what)
{
	if (unlikely(c)) {
		if (!pure_warn_expected)
			pure_die(file, line, what);
		pure_warnings++;
	}
	return c;
}

#define WARN_ON(c) pure_warn(!!(c), __FILE__, __LINE__, "WARN_ON(" #c ")")
#define WARN_ON_ONCE(c) WARN_ON(c)
#define WARN_ONCE(c, ...) WARN_ON(c)
#define WARN(c, ...) WARN_ON(c)
#define BUG_ON(c) pure_check(!(c), "BUG_ON(" #c ")")
#define BUG() pure_die(__FILE__, __LINE__, "BUG")
#define pr_err(...) fprintf(stderr, __VA_ARGS__)
#define pr_warn(...) fprintf(stderr, __VA_ARGS__)

#define MAX_ERRNO 4095
#define IS_ERR_VALUE(x) unlikely((unsigned long)(x) >= (unsigned long)-MAX_ERRNO)
static inline void *ERR_PTR(long e) { return (void *)e; }
static inline long PTR_ERR(const void *p) { return (long)p; }
static inline bool IS_ERR(const void *p) { return IS_ERR_VALUE(p); }
static inline bool IS_ERR_OR_NULL(const void *p) { return !p || IS_ERR(p); }

/* ------------------------------------------------------------------ text */

/* What was written, without the end: never more than there was room for. */
static inline __attribute__((__format__(__printf__, 3, 4))) int scnprintf(char *buf, size_t size, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(buf, size, format, args);
	va_end(args);
	return n < 0 || !size ? 0 : (size_t)n < size ? n : (int)size - 1;
}

/* Of what the kernel's takes, decimal digits alone. */
static inline int kstrtou32(const char *text, unsigned int base, u32 *n)
{
	u64 v = 0;

	pure_check(base == 10, "kstrtou32 of another base");
	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (!isdigit((unsigned char)*text))
			return -EINVAL;
		v = v * 10 + (u64)(*text - '0');
		if (v > U32_MAX)
			return -ERANGE;
	}
	*n = (u32)v;
	return 0;
}

/* ------------------------------------------------------------------ numbers */

#define min(a, b) ({ __auto_type min_a = (a); __auto_type min_b = (b); min_a < min_b ? min_a : min_b; })
#define max(a, b) ({ __auto_type max_a = (a); __auto_type max_b = (b); max_a > max_b ? max_a : max_b; })
#define min_t(t, a, b) min((t)(a), (t)(b))
#define max_t(t, a, b) max((t)(a), (t)(b))
#define min3(a, b, c) min(min(a, b), c)
#define max3(a, b, c) max(max(a, b), c)
#define clamp(v, lo, hi) min(max(v, lo), hi)
#define clamp_t(t, v, lo, hi) min_t(t, max_t(t, v, lo), hi)
#define clamp_val(v, lo, hi) clamp_t(__typeof__(v), v, lo, hi)
#define swap(a, b) do { __auto_type swap_t = (a); (a) = (b); (b) = swap_t; } while (0)
#define abs(x) ({ __auto_type abs_x = (x); abs_x < 0 ? -abs_x : abs_x; })
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
#define DIV_ROUND_UP_ULL(n, d) DIV_ROUND_UP((u64)(n), (u64)(d))
#define DIV64_U64_ROUND_UP(n, d) DIV_ROUND_UP((u64)(n), (u64)(d))
#define round_up(x, y) ((((x) - 1) | ((__typeof__(x))((y) - 1))) + 1)
#define round_down(x, y) ((x) & ~((__typeof__(x))((y) - 1)))
#define roundup(x, y) (DIV_ROUND_UP(x, y) * (y))
#define ALIGN(x, a) round_up(x, a)
#define IS_ALIGNED(x, a) (((x) & ((__typeof__(x))(a) - 1)) == 0)
#define BIT(n) (1ul << (n))
#define BIT_ULL(n) (1ull << (n))
#define GENMASK(h, l) (((~0ul) << (l)) & (~0ul >> (BITS_PER_LONG - 1 - (h))))
#define GENMASK_ULL(h, l) (((~0ull) << (l)) & (~0ull >> (63 - (h))))
#define upper_32_bits(n) ((u32)((u64)(n) >> 32))
#define lower_32_bits(n) ((u32)(n))
#define check_add_overflow(a, b, d) __builtin_add_overflow(a, b, d)
#define check_sub_overflow(a, b, d) __builtin_sub_overflow(a, b, d)
#define check_mul_overflow(a, b, d) __builtin_mul_overflow(a, b, d)

static inline u64 div_u64(u64 n, u32 d) { return n / d; }
static inline s64 div_s64(s64 n, s32 d) { return n / d; }
static inline u64 div64_u64(u64 n, u64 d) { return n / d; }
static inline s64 div64_s64(s64 n, s64 d) { return n / d; }
static inline u64 div_u64_rem(u64 n, u32 d, u32 *r) { *r = n % d; return n / d; }
static inline u64 div64_u64_rem(u64 n, u64 d, u64 *r) { *r = n % d; return n / d; }
static inline u64 mul_u64_u32_div(u64 a, u32 m, u32 d) { return (u64)((unsigned __int128)a * m / d); }
static inline u64 mul_u64_u64_div_u64(u64 a, u64 m, u64 d) { return (u64)((unsigned __int128)a * m / d); }
static inline u64 mul_u64_u32_shr(u64 a, u32 m, unsigned int s) { return (u64)(((unsigned __int128)a * m) >> s); }
#define do_div(n, d) ({ u32 do_div_r = (n) % (u32)(d); (n) /= (u32)(d); do_div_r; })

static inline int fls(unsigned int x) { return x ? 32 - __builtin_clz(x) : 0; }
static inline int fls64(u64 x) { return x ? 64 - __builtin_clzll(x) : 0; }
static inline unsigned long __fls(unsigned long x) { return (unsigned long)(BITS_PER_LONG - 1 - __builtin_clzl(x)); }
static inline unsigned long __ffs(unsigned long x) { return (unsigned long)__builtin_ctzl(x); }
static inline unsigned long ffz(unsigned long x) { return (unsigned long)__builtin_ctzl(~x); }
static inline unsigned int hweight32(u32 x) { return (unsigned int)__builtin_popcount(x); }
static inline unsigned long hweight64(u64 x) { return (unsigned long)__builtin_popcountll(x); }
static inline unsigned long hweight_long(unsigned long x) { return (unsigned long)__builtin_popcountl(x); }
static inline bool is_power_of_2(unsigned long n) { return n && !(n & (n - 1)); }
static inline int ilog2(u64 n) { return fls64(n) - 1; }
static inline unsigned long roundup_pow_of_two(unsigned long n) { return n <= 1 ? 1 : 1ul << fls64(n - 1); }
static inline unsigned long rounddown_pow_of_two(unsigned long n) { return 1ul << (fls64(n) - 1); }
static inline int order_base_2(unsigned long n) { return n <= 1 ? 0 : fls64(n - 1); }
static inline u32 rol32(u32 w, unsigned int s) { return w << (s & 31) | w >> (-s & 31); }
static inline u64 rol64(u64 w, unsigned int s) { return w << (s & 63) | w >> (-s & 63); }

static inline u32 hash_32(u32 v, unsigned int bits) { return (v * 0x61C88647u) >> (32 - bits); }
static inline u32 hash_64(u64 v, unsigned int bits) { return (u32)((v * 0x61C8864680B583EBull) >> (64 - bits)); }
#define hash_long(v, bits) hash_64(v, bits)

/* ------------------------------------------------------------------ byte order, checksums, strings */

static inline u16 le16_to_cpu(__le16 v) { return le16toh((u16)v); }
static inline u32 le32_to_cpu(__le32 v) { return le32toh((u32)v); }
static inline u64 le64_to_cpu(__le64 v) { return le64toh((u64)v); }
static inline __le16 cpu_to_le16(u16 v) { return (__le16)htole16(v); }
static inline __le32 cpu_to_le32(u32 v) { return (__le32)htole32(v); }
static inline __le64 cpu_to_le64(u64 v) { return (__le64)htole64(v); }
static inline u16 le16_to_cpup(const __le16 *p) { return le16_to_cpu(*p); }
static inline u32 le32_to_cpup(const __le32 *p) { return le32_to_cpu(*p); }
static inline u64 le64_to_cpup(const __le64 *p) { return le64_to_cpu(*p); }
static inline void le32_add_cpu(__le32 *p, u32 v) { *p = cpu_to_le32(le32_to_cpu(*p) + v); }
static inline void le64_add_cpu(__le64 *p, u64 v) { *p = cpu_to_le64(le64_to_cpu(*p) + v); }
static inline u16 get_unaligned_le16(const void *p) { __le16 v; memcpy(&v, p, 2); return le16_to_cpu(v); }
static inline u32 get_unaligned_le32(const void *p) { __le32 v; memcpy(&v, p, 4); return le32_to_cpu(v); }
static inline u64 get_unaligned_le64(const void *p) { __le64 v; memcpy(&v, p, 8); return le64_to_cpu(v); }
static inline void put_unaligned_le16(u16 x, void *p) { __le16 v = cpu_to_le16(x); memcpy(p, &v, 2); }
static inline void put_unaligned_le32(u32 x, void *p) { __le32 v = cpu_to_le32(x); memcpy(p, &v, 4); }
static inline void put_unaligned_le64(u64 x, void *p) { __le64 v = cpu_to_le64(x); memcpy(p, &v, 8); }

/* As in the kernel: no inversion before or after. */
static inline u32 crc32c(u32 crc, const void *data, unsigned int len)
{
	static u32 table[256];
	static bool ready;
	const u8 *p = data;
	u32 i, k;

	if (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) {
		for (i = 0; i < 256; i++) {
			u32 c = i;

			for (k = 0; k < 8; k++)
				c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
			__atomic_store_n(&table[i], c, __ATOMIC_RELAXED);
		}
		__atomic_store_n(&ready, true, __ATOMIC_RELEASE);
	}
	while (len--)
		crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
	return crc;
}

static inline void *memchr_inv(const void *s, int c, size_t n)
{
	const u8 *p = s;

	for (; n; n--, p++)
		if (*p != (u8)c)
			return (void *)p;
	return NULL;
}

/* ------------------------------------------------------------------ once, barriers, atomics */

#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
#define data_race(x) (x)
/* TSan knows no fences; there they order all the same (x86, and the accesses are atomic), it just does not see it. */
#if defined(__SANITIZE_THREAD__)
#define PURE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PURE_TSAN 1
#endif
#endif
#ifdef PURE_TSAN
#if defined(__x86_64__)
#define smp_mb() __asm__ __volatile__("mfence" : : : "memory")
#define smp_rmb() barrier()
#define smp_wmb() barrier()
#else
#error "the TSan build knows x86-64 only"
#endif
#else
#define smp_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define smp_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define smp_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif
#define smp_mb__before_atomic() smp_mb()
#define smp_mb__after_atomic() smp_mb()
#define smp_load_acquire(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define smp_store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define xchg(p, v) __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST)
#define cmpxchg(p, o, n) ({ \
	__auto_type cmpxchg_o = (o); \
	__atomic_compare_exchange_n(p, &cmpxchg_o, n, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	cmpxchg_o; })
#define cpu_relax() sched_yield()

typedef struct { int counter; } atomic_t;
typedef struct { s64 counter; } atomic64_t;
#define ATOMIC_INIT(i) { (i) }
#define ATOMIC64_INIT(i) { (i) }

#define PURE_ATOMIC(pre, T, A) \
static inline T pre##_read(const A *v) { return __atomic_load_n(&v->counter, __ATOMIC_RELAXED); } \
static inline void pre##_set(A *v, T i) { __atomic_store_n(&v->counter, i, __ATOMIC_RELAXED); } \
static inline void pre##_add(T i, A *v) { __atomic_fetch_add(&v->counter, i, __ATOMIC_RELAXED); } \
static inline void pre##_sub(T i, A *v) { __atomic_fetch_sub(&v->counter, i, __ATOMIC_RELAXED); } \
static inline void pre##_inc(A *v) { pre##_add(1, v); } \
static inline void pre##_dec(A *v) { pre##_sub(1, v); } \
static inline T pre##_add_return(T i, A *v) { return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST); } \
static inline T pre##_sub_return(T i, A *v) { return __atomic_sub_fetch(&v->counter, i, __ATOMIC_SEQ_CST); } \
static inline T pre##_inc_return(A *v) { return pre##_add_return(1, v); } \
static inline T pre##_dec_return(A *v) { return pre##_sub_return(1, v); } \
static inline bool pre##_dec_and_test(A *v) { return pre##_sub_return(1, v) == 0; } \
static inline T pre##_fetch_add(T i, A *v) { return __atomic_fetch_add(&v->counter, i, __ATOMIC_SEQ_CST); } \
static inline T pre##_xchg(A *v, T i) { return __atomic_exchange_n(&v->counter, i, __ATOMIC_SEQ_CST); } \
static inline T pre##_cmpxchg(A *v, T o, T n) { return cmpxchg(&v->counter, o, n); }
PURE_ATOMIC(atomic, int, atomic_t)
PURE_ATOMIC(atomic64, s64, atomic64_t)

/* ------------------------------------------------------------------ bitmaps */

#define BIT_WORD(nr) ((nr) / (unsigned long)BITS_PER_LONG)
#define BIT_MASK(nr) (1ul << ((nr) % (unsigned long)BITS_PER_LONG))
#define BITS_TO_LONGS(nr) DIV_ROUND_UP(nr, (__typeof__(nr))BITS_PER_LONG)
#define DECLARE_BITMAP(name, bits) unsigned long name[BITS_TO_LONGS(bits)]

static inline bool test_bit(unsigned long nr, const unsigned long *p) { return READ_ONCE(p[BIT_WORD(nr)]) & BIT_MASK(nr); }
/* asm-generic's take so many bits of a number, and others all: no more is relied on */
static inline void set_bit(unsigned int nr, unsigned long *p) { __atomic_fetch_or(&p[BIT_WORD(nr)], BIT_MASK(nr), __ATOMIC_RELAXED); }
static inline void clear_bit(unsigned int nr, unsigned long *p) { __atomic_fetch_and(&p[BIT_WORD(nr)], ~BIT_MASK(nr), __ATOMIC_RELAXED); }
static inline void __set_bit(unsigned long nr, unsigned long *p) { p[BIT_WORD(nr)] |= BIT_MASK(nr); }
static inline void __clear_bit(unsigned long nr, unsigned long *p) { p[BIT_WORD(nr)] &= ~BIT_MASK(nr); }
static inline bool test_and_set_bit(unsigned int nr, unsigned long *p)
{
	return __atomic_fetch_or(&p[BIT_WORD(nr)], BIT_MASK(nr), __ATOMIC_SEQ_CST) & BIT_MASK(nr);
}
static inline bool test_and_clear_bit(unsigned int nr, unsigned long *p)
{
	return __atomic_fetch_and(&p[BIT_WORD(nr)], ~BIT_MASK(nr), __ATOMIC_SEQ_CST) & BIT_MASK(nr);
}
static inline unsigned long find_next_bit(const unsigned long *p, unsigned long size, unsigned long from)
{
	while (from < size && !test_bit(from, p))
		from++;
	return min(from, size);
}
static inline unsigned long find_next_zero_bit(const unsigned long *p, unsigned long size, unsigned long from)
{
	while (from < size && test_bit(from, p))
		from++;
	return min(from, size);
}
#define find_first_bit(p, size) find_next_bit(p, size, 0)
#define find_first_zero_bit(p, size) find_next_zero_bit(p, size, 0)
#define for_each_set_bit(b, p, size) for ((b) = find_first_bit(p, size); (b) < (size); (b) = find_next_bit(p, size, (b) + 1))
static inline void bitmap_zero(unsigned long *p, unsigned int n) { memset(p, 0, BITS_TO_LONGS(n) * sizeof(long)); }
static inline void bitmap_set(unsigned long *p, unsigned int from, unsigned int n) { while (n--) __set_bit(from++, p); }
static inline void bitmap_clear(unsigned long *p, unsigned int from, unsigned int n) { while (n--) __clear_bit(from++, p); }
static inline unsigned int bitmap_weight(const unsigned long *p, unsigned int n)
{
	unsigned int i, w = 0;

	for (i = 0; i < n; i++)
		w += test_bit(i, p);
	return w;
}

/* ------------------------------------------------------------------ time */

#define HZ 250
#define NSEC_PER_SEC 1000000000L
#define NSEC_PER_MSEC 1000000L
#define NSEC_PER_USEC 1000L
#define USEC_PER_SEC 1000000L
#define USEC_PER_MSEC 1000L
#define MSEC_PER_SEC 1000L
static unsigned long jiffies __maybe_unused;	/* a test sets it */
#define time_after(a, b) ((long)((b) - (a)) < 0)
#define time_before(a, b) time_after(b, a)
#define time_after_eq(a, b) ((long)((a) - (b)) >= 0)
#define time_before_eq(a, b) time_after_eq(b, a)
static inline unsigned long msecs_to_jiffies(unsigned int ms) { return DIV_ROUND_UP((unsigned long)ms * HZ, 1000ul); }
static inline unsigned int jiffies_to_msecs(unsigned long j) { return (unsigned int)(j * (1000 / HZ)); }

/* ------------------------------------------------------------------ contexts and locks */

static __thread int pure_atomic_depth;		/* spin locks and RCU sections of this thread */
static __thread int pure_rcu_depth;

#define might_sleep() pure_check(!pure_atomic_depth, "sleeps in atomic context")
#define might_sleep_if(c) do { if (c) might_sleep(); } while (0)
#define cond_resched() might_sleep()
#define in_interrupt() false
#define lockdep_assert_held(l) pure_check((l)->owner == &pure_atomic_depth, "lock not held")
#define lockdep_is_held(l) ((l)->owner == &pure_atomic_depth)
#define lockdep_assert_irqs_disabled() do { } while (0)

/* who holds a spin lock is a reader of RCU, as in the kernel */
static inline void rcu_read_lock(void);
static inline void rcu_read_unlock(void);

typedef struct { int held; int *owner; } spinlock_t;
typedef spinlock_t raw_spinlock_t;
#define DEFINE_SPINLOCK(x) spinlock_t x
#define __SPIN_LOCK_UNLOCKED(x) { 0, NULL }

static inline void spin_lock_init(spinlock_t *l) { l->held = 0; l->owner = NULL; }
static inline void spin_lock(spinlock_t *l)
{
	pure_check(READ_ONCE(l->owner) != &pure_atomic_depth, "spin lock taken twice");
	while (__atomic_exchange_n(&l->held, 1, __ATOMIC_ACQUIRE))
		sched_yield();
	WRITE_ONCE(l->owner, &pure_atomic_depth);
	pure_atomic_depth++;
	rcu_read_lock();
}
static inline void spin_unlock(spinlock_t *l)
{
	pure_check(READ_ONCE(l->owner) == &pure_atomic_depth, "spin lock not held");
	WRITE_ONCE(l->owner, NULL);
	pure_atomic_depth--;
	__atomic_store_n(&l->held, 0, __ATOMIC_RELEASE);
	rcu_read_unlock();
}
#define spin_lock_irqsave(l, flags) do { (flags) = 1; spin_lock(l); } while (0)
#define spin_unlock_irqrestore(l, flags) do { (void)(flags); spin_unlock(l); } while (0)
#define spin_lock_irq(l) spin_lock(l)
#define spin_unlock_irq(l) spin_unlock(l)
#define spin_lock_bh(l) spin_lock(l)
#define spin_unlock_bh(l) spin_unlock(l)
#define spin_is_locked(l) (READ_ONCE((l)->held) != 0)

struct mutex { pthread_mutex_t m; int *owner; };
static inline void mutex_init(struct mutex *m) { pthread_mutex_init(&m->m, NULL); m->owner = NULL; }
static inline void mutex_destroy(struct mutex *m) { pthread_mutex_destroy(&m->m); }
static inline void mutex_lock(struct mutex *m) { might_sleep(); pthread_mutex_lock(&m->m); m->owner = &pure_atomic_depth; }
static inline void mutex_unlock(struct mutex *m) { m->owner = NULL; pthread_mutex_unlock(&m->m); }

/* A writer is inside while the count is odd; a reader waits for even. */
typedef struct { unsigned int sequence; } seqcount_t;
typedef struct { unsigned int sequence; } seqcount_spinlock_t;
#define seqcount_init(s) ((s)->sequence = 0)
#define seqcount_spinlock_init(s, l) do { (s)->sequence = 0; (void)(l); } while (0)
#define read_seqcount_begin(s) ({ \
	unsigned int seq_r; \
	while ((seq_r = __atomic_load_n(&(s)->sequence, __ATOMIC_ACQUIRE)) & 1) \
		sched_yield(); \
	seq_r; })
#define raw_read_seqcount_begin(s) read_seqcount_begin(s)
#define read_seqcount_retry(s, start) ({ smp_rmb(); READ_ONCE((s)->sequence) != (start); })
#define raw_write_seqcount_begin(s) do { \
	pure_check(pure_atomic_depth, "seqcount writer may be preempted"); \
	pure_check(!((s)->sequence & 1), "seqcount writers nest"); \
	WRITE_ONCE((s)->sequence, (s)->sequence + 1); \
	smp_wmb(); \
} while (0)
#define raw_write_seqcount_end(s) do { \
	pure_check((s)->sequence & 1, "no seqcount writer"); \
	smp_wmb(); \
	__atomic_store_n(&(s)->sequence, (s)->sequence + 1, __ATOMIC_RELEASE); \
} while (0)
#define write_seqcount_begin(s) raw_write_seqcount_begin(s)
#define write_seqcount_end(s) raw_write_seqcount_end(s)

/* ------------------------------------------------------------------ RCU */

struct rcu_head { struct rcu_head *next; void (*func)(struct rcu_head *head); };

#define PURE_RCU_THREADS 64
static struct { unsigned long section; } pure_rcu_readers[PURE_RCU_THREADS] __aligned(64);	/* odd: inside */
static int pure_rcu_nr;				/* threads seen */
static __thread int pure_rcu_self = -1;
static struct rcu_head *pure_rcu_pending;	/* newest first */
static pthread_mutex_t pure_rcu_mutex = PTHREAD_MUTEX_INITIALIZER;

static inline void rcu_read_lock(void)
{
	if (pure_rcu_self < 0) {
		pure_rcu_self = __atomic_fetch_add(&pure_rcu_nr, 1, __ATOMIC_SEQ_CST);
		pure_check(pure_rcu_self < PURE_RCU_THREADS, "too many threads");
	}
	pure_atomic_depth++;
	if (pure_rcu_depth++ == 0)
		__atomic_fetch_add(&pure_rcu_readers[pure_rcu_self].section, 1, __ATOMIC_SEQ_CST);
}

static inline void rcu_read_unlock(void)
{
	pure_check(pure_rcu_depth > 0, "rcu_read_unlock without lock");
	pure_atomic_depth--;
	if (--pure_rcu_depth == 0)
		__atomic_fetch_add(&pure_rcu_readers[pure_rcu_self].section, 1, __ATOMIC_SEQ_CST);
}

#define rcu_read_lock_held() (pure_rcu_depth > 0)
#define rcu_read_lock_any_held() rcu_read_lock_held()
#define rcu_dereference(p) ({ pure_check(pure_rcu_depth, "rcu_dereference outside"); __atomic_load_n(&(p), __ATOMIC_ACQUIRE); })
#define rcu_dereference_protected(p, c) ({ pure_check(c, "not protected"); __atomic_load_n(&(p), __ATOMIC_RELAXED); })
#define rcu_dereference_check(p, c) ({ pure_check(pure_rcu_depth || (c), "not protected"); __atomic_load_n(&(p), __ATOMIC_ACQUIRE); })
#define rcu_dereference_raw(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define rcu_access_pointer(p) READ_ONCE(p)
#define rcu_assign_pointer(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
#define RCU_INIT_POINTER(p, v) WRITE_ONCE(p, v)

static inline void synchronize_rcu(void)
{
	int i, nr = __atomic_load_n(&pure_rcu_nr, __ATOMIC_SEQ_CST);

	might_sleep();
	smp_mb();
	for (i = 0; i < nr; i++) {
		unsigned long seen = __atomic_load_n(&pure_rcu_readers[i].section, __ATOMIC_SEQ_CST);

		while ((seen & 1) && __atomic_load_n(&pure_rcu_readers[i].section, __ATOMIC_SEQ_CST) == seen)
			sched_yield();
	}
}

/* Waits for a grace period and runs what call_rcu() has queued. */
static inline void rcu_barrier(void)
{
	struct rcu_head *h, *next;

	pthread_mutex_lock(&pure_rcu_mutex);
	h = pure_rcu_pending;
	pure_rcu_pending = NULL;
	pthread_mutex_unlock(&pure_rcu_mutex);
	synchronize_rcu();
	for (; h; h = next) {
		next = h->next;
		h->func(h);
	}
}

static inline void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	int nr = __atomic_load_n(&pure_rcu_nr, __ATOMIC_SEQ_CST);

	WRITE_ONCE(head->func, func);	/* the head may lie in what readers still read */
	/* nobody reads but us: a thread that has not read yet writes beside one that has */
	if (!pure_rcu_depth && (!nr || (nr == 1 && !pure_rcu_self))) {
		func(head);
		return;
	}
	pthread_mutex_lock(&pure_rcu_mutex);
	WRITE_ONCE(head->next, pure_rcu_pending);
	pure_rcu_pending = head;
	pthread_mutex_unlock(&pure_rcu_mutex);
}

/* ------------------------------------------------------------------ memory */

#define __GFP_ZERO 0x1u
#define __GFP_NOWARN 0x2u
#define __GFP_NORETRY 0x4u
#define __GFP_DIRECT_RECLAIM 0x8u
#define __GFP_NOMEMALLOC 0x10u
#define __GFP_HIGH 0x20u
#define GFP_KERNEL __GFP_DIRECT_RECLAIM
#define GFP_NOIO __GFP_DIRECT_RECLAIM
#define GFP_NOFS __GFP_DIRECT_RECLAIM
#define GFP_NOWAIT 0u
#define GFP_ATOMIC __GFP_HIGH
#define memalloc_noio_save() 0u
#define memalloc_noio_restore(f) ((void)(f))
#define memalloc_nofs_save() 0u
#define memalloc_nofs_restore(f) ((void)(f))
static __thread unsigned int pure_noreclaim;
#define memalloc_noreclaim_save() (pure_noreclaim++)
#define memalloc_noreclaim_restore(f) ((void)(pure_noreclaim = (f)))

#define PURE_FAIL_SLEEPING 1u
#define PURE_FAIL_ATOMIC 2u
#define PURE_FAIL_NORECLAIM 4u		/* sleeping, but without reclaim */
static long pure_fail_after = -1;		/* this many succeed, then one fails; -1: off */
static unsigned int pure_fail_rate;		/* one in so many fails; 0: off */
static unsigned int pure_fail_mask = PURE_FAIL_SLEEPING | PURE_FAIL_ATOMIC;
static u64 pure_fail_seed = 1;
static unsigned long pure_failed;		/* how many were made to fail */
static long pure_live, pure_allocated;		/* pieces, bytes in use */

static inline bool pure_fail(gfp_t gfp)
{
	bool fail = false;

	if (!(pure_fail_mask & (!(gfp & __GFP_DIRECT_RECLAIM) ? PURE_FAIL_ATOMIC : pure_noreclaim ? PURE_FAIL_NORECLAIM : PURE_FAIL_SLEEPING)))
		return false;
	if (pure_fail_after >= 0 && pure_fail_after-- == 0)
		fail = true;
	if (pure_fail_rate) {
		pure_fail_seed = pure_fail_seed * 6364136223846793005ull + 1442695040888963407ull;
		fail |= (pure_fail_seed >> 33) % pure_fail_rate == 0;
	}
	if (fail)
		__atomic_fetch_add(&pure_failed, 1, __ATOMIC_RELAXED);
	return fail;
}

/* The size is kept in front of the piece, 16 bytes before it (and before any alignment). */
static inline void *pure_alloc(size_t size, size_t align, gfp_t gfp)
{
	size_t head = max_t(size_t, align, 16);
	char *p;

	might_sleep_if(gfp & __GFP_DIRECT_RECLAIM);
	if (pure_fail(gfp))
		return NULL;
	p = align > 16 ? aligned_alloc(align, round_up(size + head, align)) : malloc(size + head);
	if (!p)
		return NULL;
	p += head;
	((size_t *)p)[-1] = size;
	((size_t *)p)[-2] = head;
	memset(p, gfp & __GFP_ZERO ? 0 : 0xa5, size);
	__atomic_fetch_add(&pure_live, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&pure_allocated, (long)size, __ATOMIC_RELAXED);
	return p;
}

static inline void kfree(const void *v)
{
	char *p = (char *)v;

	if (!p)
		return;
	__atomic_fetch_sub(&pure_live, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&pure_allocated, (long)((size_t *)p)[-1], __ATOMIC_RELAXED);
	free(p - ((size_t *)p)[-2]);
}

/* As the kernel's size classes are aligned, up to a cache line */
static inline void *kmalloc(size_t n, gfp_t gfp) { return pure_alloc(n, n > 96 ? SMP_CACHE_BYTES : 8, gfp); }
static inline void *kzalloc(size_t n, gfp_t gfp) { return kmalloc(n, gfp | __GFP_ZERO); }
static inline void *kmalloc_array(size_t n, size_t s, gfp_t gfp)
{
	size_t all;

	return __builtin_mul_overflow(n, s, &all) ? NULL : kmalloc(all, gfp);
}
static inline void *kcalloc(size_t n, size_t s, gfp_t gfp) { return kmalloc_array(n, s, gfp | __GFP_ZERO); }
static inline void *vmalloc(size_t n) { return pure_alloc(n, PAGE_SIZE, GFP_KERNEL); }
static inline void *vzalloc(size_t n) { return pure_alloc(n, PAGE_SIZE, GFP_KERNEL | __GFP_ZERO); }
static inline void *__vmalloc(size_t n, gfp_t gfp) { return pure_alloc(n, PAGE_SIZE, gfp); }
static inline void *kmemdup(const void *p, size_t n, gfp_t gfp)
{
	void *q = kmalloc(n, gfp);

	return q ? memcpy(q, p, n) : NULL;
}
#define kvmalloc(n, gfp) kmalloc(n, gfp)
#define kvzalloc(n, gfp) kzalloc(n, gfp)
#define kvmalloc_array(n, s, gfp) kmalloc_array(n, s, gfp)
#define kvcalloc(n, s, gfp) kcalloc(n, s, gfp)
#define kvfree(p) kfree(p)
#define vfree(p) kfree(p)

struct kmem_cache { size_t size, align; long objects; };
#define SLAB_HWCACHE_ALIGN 0x1u
#define SLAB_RECLAIM_ACCOUNT 0x2u

static inline struct kmem_cache *kmem_cache_create(const char *name, unsigned int size, unsigned int align, unsigned int flags, void (*ctor)(void *))
{
	struct kmem_cache *c = kzalloc(sizeof(*c), GFP_KERNEL);

	(void)name;
	(void)flags;
	pure_check(!ctor, "constructors are not done here");
	if (c) {
		c->size = size;
		c->align = max_t(unsigned int, align, 8);
	}
	return c;
}
static inline void *kmem_cache_alloc(struct kmem_cache *c, gfp_t gfp)
{
	void *p = pure_alloc(c->size, c->align, gfp);

	if (p)
		__atomic_fetch_add(&c->objects, 1, __ATOMIC_RELAXED);
	return p;
}
static inline void *kmem_cache_zalloc(struct kmem_cache *c, gfp_t gfp) { return kmem_cache_alloc(c, gfp | __GFP_ZERO); }
static inline void kmem_cache_free(struct kmem_cache *c, void *p)
{
	pure_check(((size_t *)p)[-1] == c->size, "freed into another cache");
	__atomic_fetch_sub(&c->objects, 1, __ATOMIC_RELAXED);
	kfree(p);
}
static inline unsigned int kmem_cache_size(struct kmem_cache *c) { return (unsigned int)c->size; }
static inline void kmem_cache_destroy(struct kmem_cache *c)
{
	if (!c)
		return;
	pure_check(c->objects == 0, "kmem_cache destroyed with objects left");
	kfree(c);
}

/* memcpy and memmove of shared words, under a seqcount: word by word for TSan, which is told that this is meant. */
#ifdef PURE_TSAN
static inline void *pure_memmove(void *to, const void *from, size_t n)
{
	u64 *t = to;
	const u64 *f = from;
	size_t i, words = n / 8;

	if (n % 8 || ((unsigned long)to | (unsigned long)from) % 8)
		return __builtin_memmove(to, from, n);
	if (t <= f)
		for (i = 0; i < words; i++)
			__atomic_store_n(&t[i], __atomic_load_n(&f[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	else
		for (i = words; i--;)
			__atomic_store_n(&t[i], __atomic_load_n(&f[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	return to;
}
#define memmove(t, f, n) pure_memmove(t, f, n)
#endif

#endif
