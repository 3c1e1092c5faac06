// MOON's two convolutions, forwards and backwards, and the SGD step, for many models at once; everything in float32.
// A block holds one model; its threads share one image at a time. THREADS = 1 compiles as C++ for a CPU, where a block is a call.
//
// order: (steps, deals, batch) of int32, a record's index, its shift down << 20, right << 24 and whether it is mirrored << 28; -1 for none.
// Model m trains on the records of deal m / models_per_deal.

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
#define UNROLL _Pragma("unroll")
#else
#include <math.h>
struct Index { int x, y; };
static Index blockIdx, gridDim, threadIdx;
static float shared[20000];
extern "C" void place(int x, int y, int width, int height) { blockIdx = {x, y}; gridDim = {width, height}; }
static void __syncthreads() {}
#define KERNEL extern "C" void
#define UNROLL
#endif

#define EACH(i, n) for (int i = threadIdx.x; i < (n); i += THREADS)
#define SLOTS(n) (((n) + THREADS - 1) / THREADS)

// An image at x, `row` floats a row and `plane` a channel, cropped, mirrored and normalised.
static
#ifdef __CUDACC__
__device__ __forceinline__
#endif
void read_image(float *x, int row, int plane, const unsigned char *images, int packed, const float *moments) {
  const unsigned char *image = images + (long long)(packed & 0xfffff) * 3072;
  int top = ((packed >> 20) & 15) - 4, left = ((packed >> 24) & 15) - 4, mirrored = (packed >> 28) & 1;
  EACH(i, 3072) {
    int c = i >> 10, y = (i >> 5) & 31, column = i & 31;
    int from_y = y + top, from_x = (mirrored ? 31 - column : column) + left;
    bool inside = from_y >= 0 && from_y < 32 && from_x >= 0 && from_x < 32;
    float value = inside ? image[c * 1024 + from_y * 32 + from_x] / 255.0f : 0.0f;
    x[c * plane + y * row + column] = (value - moments[c]) / moments[3 + c];
  }
}

// Features before the first fully connected layer, (models, batch, 400); h1, k1, k2 may be null if no gradient is wanted.
// w1 (models, 6, 3, 5, 5), w2 (models, 16, 6, 5, 5); h1 (models, batch, 6, 14, 14); k: which of the four pixels was the largest.
KERNEL convolve(const unsigned char *images, const int *order, const int *step, const float *moments, const float *w1, const float *b1,
                const float *w2, const float *b2, float *h1, unsigned char *k1, float *h2, unsigned char *k2, int deals,
                int models_per_deal) {
#ifdef __CUDACC__
  __shared__ __align__(16) float shared[3072 + 600 + 2400 + 1176];
#endif
  float *x = shared, *s1 = x + 3072, *s2 = s1 + 600, *h = s2 + 2400;
  int b = blockIdx.x, m = blockIdx.y, batch = gridDim.x;
  int packed = order[((long long)*step * deals + m / models_per_deal) * batch + b];
  long long at = (long long)m * batch + b;
  if (packed < 0) {
    EACH(i, 400) h2[at * 400 + i] = 0.0f;
    return;
  }
  read_image(x, 32, 1024, images, packed, moments);
  EACH(i, 450) s1[(i % 75) * 8 + i / 75] = w1[m * 450 + i];
  EACH(i, 2400) s2[(i % 150) * 16 + i / 150] = w2[m * 2400 + i];
  __syncthreads();
  EACH(t, 196) {
    int py = t / 14, px = t % 14;
    float acc[6][4] = {};
    for (int c = 0; c < 3; c++) {
      float patch[6][6];
      UNROLL for (int y = 0; y < 6; y++) UNROLL for (int k = 0; k < 6; k++) patch[y][k] = x[c * 1024 + (2 * py + y) * 32 + 2 * px + k];
      UNROLL for (int i = 0; i < 5; i++) UNROLL for (int j = 0; j < 5; j++) {
        const float *w = s1 + (c * 25 + i * 5 + j) * 8;
        UNROLL for (int o = 0; o < 6; o++) UNROLL for (int q = 0; q < 4; q++) acc[o][q] += w[o] * patch[i + q / 2][j + q % 2];
      }
    }
    UNROLL for (int o = 0; o < 6; o++) {
      int k = 0;
      float most = acc[o][0];
      UNROLL for (int q = 1; q < 4; q++) if (acc[o][q] > most) most = acc[o][q], k = q;
      most = fmaxf(most + b1[m * 6 + o], 0.0f);
      h[o * 196 + t] = most;
      if (h1) h1[at * 1176 + o * 196 + t] = most, k1[at * 1176 + o * 196 + t] = k;
    }
  }
  __syncthreads();
  EACH(t, 200) {
    int p = t % 25, o = t / 25 * 2, py = p / 5, px = p % 5;
    float acc[2][4] = {};
    for (int c = 0; c < 6; c++) {
      float patch[6][6];
      UNROLL for (int y = 0; y < 6; y++) UNROLL for (int k = 0; k < 6; k++) patch[y][k] = h[c * 196 + (2 * py + y) * 14 + 2 * px + k];
      UNROLL for (int i = 0; i < 5; i++) UNROLL for (int j = 0; j < 5; j++) {
        const float *w = s2 + (c * 25 + i * 5 + j) * 16 + o;
        UNROLL for (int a = 0; a < 2; a++) UNROLL for (int q = 0; q < 4; q++) acc[a][q] += w[a] * patch[i + q / 2][j + q % 2];
      }
    }
    UNROLL for (int a = 0; a < 2; a++) {
      int k = 0;
      float most = acc[a][0];
      UNROLL for (int q = 1; q < 4; q++) if (acc[a][q] > most) most = acc[a][q], k = q;
      h2[at * 400 + (o + a) * 25 + p] = fmaxf(most + b2[m * 16 + o + a], 0.0f);
      if (k2) k2[at * 400 + (o + a) * 25 + p] = k;
    }
  }
}

// The weights' gradients from slopes (models, batch, 400) of h2: parts (models, gridDim.x, 2872), each the sum over some images, in the
// order w1, b1, w2, b2.
KERNEL slopes(const unsigned char *images, const int *order, const int *step, const float *moments, const float *w2, const float *h1,
              const unsigned char *k1, const float *h2, const unsigned char *k2, const float *slope, float *parts, int deals,
              int models_per_deal, int batch) {
#ifdef __CUDACC__
  extern __shared__ __align__(16) float shared[];
#endif
  const int ROW = 33, PLANE = 1061;  // no two threads of a warp share a bank
  float *x = shared, *h = x + 3184, *g1 = h + 1176, *g2 = g1 + 1176, *dense = g2 + 400, *t2 = dense + 5184;
  int *at1 = (int *)(t2 + 2400), *at2 = at1 + 1176;
  int m = blockIdx.y;
  float d1[SLOTS(180)][5] = {}, d2[SLOTS(480)][5] = {}, bias[SLOTS(22)] = {};
  EACH(i, 2400) t2[(i / 150 * 25 + i % 25) * 6 + i % 150 / 25] = w2[m * 2400 + i];
  for (int b = blockIdx.x; b < batch; b += gridDim.x) {
    int packed = order[((long long)*step * deals + m / models_per_deal) * batch + b];
    if (packed < 0) continue;
    long long at = (long long)m * batch + b;
    __syncthreads();
    read_image(x, ROW, PLANE, images, packed, moments);
    EACH(i, 5184) dense[i] = 0.0f;
    EACH(i, 1176) {
      int k = k1[at * 1176 + i], t = i % 196;
      h[i] = h1[at * 1176 + i];
      at1[i] = (t / 14 * 2 + k / 2) * ROW + t % 14 * 2 + k % 2;
    }
    __syncthreads();
    EACH(i, 400) {
      int k = k2[at * 400 + i], p = i % 25, y = p / 5 * 2 + k / 2, column = p % 5 * 2 + k % 2;
      float g = h2[at * 400 + i] > 0.0f ? slope[at * 400 + i] : 0.0f;
      g2[i] = g;
      at2[i] = y * 14 + column;
      dense[i / 25 * 324 + (y + 4) * 18 + column + 4] = g;
    }
    __syncthreads();
    EACH(t, 147) {
      int tile = t % 49, c = t / 49 * 2, y = tile / 7 * 2, column = tile % 7 * 2;
      float acc[2][4] = {};
      for (int o = 0; o < 16; o++) {
        float patch[6][6];
        UNROLL for (int r = 0; r < 6; r++) UNROLL for (int k = 0; k < 6; k++) patch[r][k] = dense[o * 324 + (y + r) * 18 + column + k];
        UNROLL for (int i = 0; i < 5; i++) UNROLL for (int j = 0; j < 5; j++) {
          const float *w = t2 + (o * 25 + i * 5 + j) * 6 + c;
          UNROLL for (int a = 0; a < 2; a++) UNROLL for (int q = 0; q < 4; q++) acc[a][q] += w[a] * patch[4 - i + q / 2][4 - j + q % 2];
        }
      }
      UNROLL for (int a = 0; a < 2; a++) UNROLL for (int q = 0; q < 4; q++) {
        int i = (c + a) * 196 + (y + q / 2) * 14 + column + q % 2;
        g1[i] = h[i] > 0.0f ? acc[a][q] : 0.0f;
      }
    }
    __syncthreads();
    UNROLL for (int s = 0; s < SLOTS(480); s++) {
      int item = threadIdx.x + s * THREADS;
      if (item < 480) {
        int i = item % 5, c = item / 5 % 6, o = item / 30;
        for (int p = 0; p < 25; p++) {
          float g = g2[o * 25 + p];
          const float *from = h + c * 196 + at2[o * 25 + p] + i * 14;
          UNROLL for (int j = 0; j < 5; j++) d2[s][j] += g * from[j];
        }
      }
    }
    UNROLL for (int s = 0; s < SLOTS(180); s++) {
      int item = threadIdx.x + s * THREADS;
      if (item < 180) {
        int half = item / 90, i = item % 5, c = item / 5 % 3, o = item / 15 % 6;
        for (int p = half * 98; p < half * 98 + 98; p++) {
          float g = g1[o * 196 + p];
          const float *from = x + c * PLANE + at1[o * 196 + p] + i * ROW;
          UNROLL for (int j = 0; j < 5; j++) d1[s][j] += g * from[j];
        }
      }
    }
    UNROLL for (int s = 0; s < SLOTS(22); s++) {
      int o = (int)threadIdx.x - (THREADS > 22 ? THREADS - 22 : 0) + s * THREADS;
      if (o >= 0 && o < 6) for (int p = 0; p < 196; p++) bias[s] += g1[o * 196 + p];
      if (o >= 6 && o < 22) for (int p = 0; p < 25; p++) bias[s] += g2[(o - 6) * 25 + p];
    }
  }
  float *part = parts + ((long long)m * gridDim.x + blockIdx.x) * 2872;
  __syncthreads();
  UNROLL for (int s = 0; s < SLOTS(180); s++) {  // halves meet in shared memory
    int item = threadIdx.x + s * THREADS;
    if (item < 180) UNROLL for (int j = 0; j < 5; j++) x[item * 5 + j] = d1[s][j];
  }
  __syncthreads();
  EACH(i, 450) part[i] = x[i] + x[450 + i];
  UNROLL for (int s = 0; s < SLOTS(480); s++) {
    int item = threadIdx.x + s * THREADS;
    if (item < 480) UNROLL for (int j = 0; j < 5; j++) part[456 + item * 5 + j] = d2[s][j];
  }
  UNROLL for (int s = 0; s < SLOTS(22); s++) {
    int o = (int)threadIdx.x - (THREADS > 22 ? THREADS - 22 : 0) + s * THREADS;
    if (o >= 0 && o < 6) part[450 + o] = bias[s];
    if (o >= 6 && o < 22) part[2856 + o - 6] = bias[s];
  }
}

// SGD with momentum on the loss + decay/2 |w|^2 + mu/2 |w - origin|^2. Layer l of the models starts at l's entry of `starts` and takes
// `sizes` numbers a model; models with mu of their own.
KERNEL descend(float *weights, const float *gradient, float *velocity, const float *origin, const float *mu, const int *starts,
               const int *sizes, int models, float rate, float momentum, float decay) {
  int size = sizes[blockIdx.y];
  long long start = starts[blockIdx.y];
  for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < (long long)models * size; i += (long long)gridDim.x * THREADS) {
    float w = weights[start + i];
    float g = gradient[start + i] + decay * w + mu[i / size] * (w - origin[start + i]);
    float v = momentum * velocity[start + i] + g;
    velocity[start + i] = v;
    weights[start + i] = w - rate * v;
  }
}
