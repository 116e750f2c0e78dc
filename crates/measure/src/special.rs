//! Special functions of distributions with identical bits on every machine: they use only the four operations, the
//! square root and the `libm` crate, never the system's library.

use libm::{erfc, exp, lgamma, log, sqrt};

/// Both sides of a distribution function at one point, P(X ≤ x) and P(X > x), so that neither tail loses digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probability {
    /// P(X ≤ x).
    pub below: f64,
    /// P(X > x).
    pub above: f64,
}

impl Probability {
    /// All probability is above.
    pub const NONE: Probability = Probability { below: 0.0, above: 1.0 };
    /// All probability is below.
    pub const ALL: Probability = Probability { below: 1.0, above: 0.0 };

    /// A probability given by its lower side.
    #[must_use]
    pub fn below(below: f64) -> Self {
        Probability { below, above: 1.0 - below }
    }

    /// A probability given by its upper side.
    #[must_use]
    pub fn above(above: f64) -> Self {
        Probability { below: 1.0 - above, above }
    }
}

/// The standard normal distribution function.
#[must_use]
pub fn normal_cdf(z: f64) -> Probability {
    let half = |x: f64| 0.5 * erfc(x * std::f64::consts::FRAC_1_SQRT_2);
    Probability { below: half(-z), above: half(z) }
}

/// The standard normal quantile: Wichura's AS 241 (PPND16), with a relative error of about 1e-15.
#[must_use]
pub fn normal_quantile(p: Probability) -> f64 {
    let centred = if p.below < p.above { p.below - 0.5 } else { 0.5 - p.above };
    if centred.abs() <= 0.425 {
        let r = 0.180_625 - centred * centred;
        return centred * ratio(&A, &B, r);
    }
    let tail = p.below.min(p.above);
    if tail <= 0.0 {
        return if p.below < p.above { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    let r = sqrt(-log(tail));
    let size = if r <= 5.0 { ratio(&C, &D, r - 1.6) } else { ratio(&E, &F, r - 5.0) };
    if p.below < p.above { -size } else { size }
}

fn ratio(numerator: &[f64; 8], denominator: &[f64; 8], x: f64) -> f64 {
    let horner = |coefficients: &[f64; 8]| coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c);
    horner(numerator) / horner(denominator)
}

// The coefficients of AS 241, lowest power first.
const A: [f64; 8] = [
    3.387_132_872_796_366_5, 133.141_667_891_784_38, 1_971.590_950_306_551_3, 13_731.693_765_509_46,
    45_921.953_931_549_87, 67_265.770_927_008_7, 33_430.575_583_588_13, 2_509.080_928_730_122_7,
];
const B: [f64; 8] = [
    1.0, 42.313_330_701_600_91, 687.187_007_492_057_9, 5_394.196_021_424_751, 21_213.794_301_586_597,
    39_307.895_800_092_71, 28_729.085_735_721_943, 5_226.495_278_852_854,
];
const C: [f64; 8] = [
    1.423_437_110_749_683_5, 4.630_337_846_156_546, 5.769_497_221_460_691, 3.647_848_324_763_204_5,
    1.270_458_252_452_368_4, 0.241_780_725_177_450_6, 0.022_723_844_989_269_184, 7.745_450_142_783_414e-4,
];
const D: [f64; 8] = [
    1.0, 2.053_191_626_637_759, 1.676_384_830_183_803_8, 0.689_767_334_985_1, 0.148_103_976_427_480_08,
    0.015_198_666_563_616_457, 5.475_938_084_995_345e-4, 1.050_750_071_644_416_9e-9,
];
const E: [f64; 8] = [
    6.657_904_643_501_103, 5.463_784_911_164_114, 1.784_826_539_917_291_3, 0.296_560_571_828_504_87,
    0.026_532_189_526_576_124, 1.242_660_947_388_078_4e-3, 2.711_555_568_743_487_6e-5, 2.010_334_399_292_288_1e-7,
];
const F: [f64; 8] = [
    1.0, 0.599_832_206_555_888, 0.136_929_880_922_735_8, 0.014_875_361_290_850_615, 7.868_691_311_456_133e-4,
    1.846_318_317_510_054_8e-5, 1.421_511_758_316_446e-7, 2.044_263_103_389_939_8e-15,
];

/// The distribution function of the gamma law with this shape and scale 1: the regularised incomplete gamma functions P
/// and Q, by the series below `shape + 1` and by the continued fraction (Lentz) above. The error is about 1e-13 for
/// shapes up to 100, and 1e-10 up to 100 000.
#[must_use]
pub fn gamma_cdf(shape: f64, x: f64) -> Probability {
    if x <= 0.0 {
        return Probability::NONE;
    }
    let prefix = exp(shape * log(x) - x - lgamma(shape));
    if x < shape + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / shape, 1.0 / shape, shape);
        while term > sum * 1e-17 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return Probability::below((sum * prefix).min(1.0));
    }
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - shape;
    let (mut c, mut d) = (1.0 / TINY, 1.0 / b);
    let mut h = d;
    for i in 1..1_000_000 {
        let i = f64::from(i);
        let a = -i * (i - shape);
        b += 2.0;
        d = 1.0 / not_zero(a * d + b, TINY);
        c = not_zero(b + a / c, TINY);
        h *= d * c;
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    Probability::above((prefix * h).clamp(0.0, 1.0))
}

fn not_zero(x: f64, tiny: f64) -> f64 {
    if x.abs() < tiny { tiny } else { x }
}

/// The quantile of the gamma law with this shape and scale 1: bracketed Newton iteration on the logarithm of the
/// smaller tail.
#[must_use]
pub fn gamma_quantile(shape: f64, p: Probability) -> f64 {
    if p.below <= 0.0 {
        return 0.0;
    }
    if p.above <= 0.0 {
        return f64::INFINITY;
    }
    let lower = p.below < p.above;
    // Cube root by Wilson and Hilferty; if it fails, the first term of the series.
    let ninth = 1.0 / (9.0 * shape);
    let cube = 1.0 - ninth + normal_quantile(p) * sqrt(ninth);
    let series = exp((log(p.below) + lgamma(shape + 1.0)) / shape);
    let mut x = if cube > 0.3 { shape * cube * cube * cube } else { series };
    let (mut low, mut high) = (0.0, f64::INFINITY);
    for _ in 0..200 {
        let at = gamma_cdf(shape, x);
        let over = if lower { at.below > p.below } else { at.above < p.above };
        if over {
            high = x;
        } else {
            low = x;
        }
        let density = exp((shape - 1.0) * log(x) - x - lgamma(shape));
        let step = if lower {
            at.below * log(at.below / p.below) / density
        } else {
            at.above * log(p.above / at.above) / density
        };
        let newton = x - step;
        let next = if newton > low && newton < high && step.is_finite() {
            newton
        } else if high.is_infinite() {
            x * 2.0
        } else if low > 0.0 {
            sqrt(low) * sqrt(high)
        } else {
            high * 0.5
        };
        let moved = (next - x).abs();
        x = next;
        if moved <= 4e-16 * x || x <= 0.0 {
            break;
        }
    }
    x
}

/// P(D > d) of the two-sided Kolmogorov–Smirnov test with `n` values: Kolmogorov's series with Stephens' correction
/// (1970).
#[must_use]
pub fn kolmogorov(d: f64, n: f64) -> f64 {
    let root = sqrt(n);
    let lambda = d * (root + 0.12 + 0.11 / root);
    if lambda < 0.2 {
        return 1.0;
    }
    let mut sum = 0.0;
    for k in 1..100 {
        let term = exp(-2.0 * f64::from(k * k) * lambda * lambda);
        sum += if k % 2 == 1 { term } else { -term };
        if term < 1e-18 {
            break;
        }
    }
    (2.0 * sum).clamp(0.0, 1.0)
}

/// P(χ² > `x`) with `df` degrees of freedom.
#[must_use]
pub fn chi2_above(df: f64, x: f64) -> f64 {
    gamma_cdf(df / 2.0, x / 2.0).above
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, wanted: f64, relative: f64, what: &str) {
        assert!((got / wanted - 1.0).abs() <= relative, "{what}: {got:e} instead of {wanted:e}");
    }

    /// Lower and upper tail probabilities of the reference quantiles from SciPy 1.17.
    const BELOW: [f64; 7] = [1e-12, 1e-6, 1e-4, 0.01, 0.3, 0.5, 0.9];
    const ABOVE: [f64; 3] = [1e-4, 1e-9, 1e-15];

    fn points() -> impl Iterator<Item = Probability> {
        BELOW.into_iter().map(Probability::below).chain(ABOVE.into_iter().map(Probability::above))
    }

    #[test]
    fn normal_quantiles_match_scipy() {
        let wanted = [
            -7.034_483_825_301_131, -4.753_424_308_822_899, -3.719_016_485_455_680_4, -2.326_347_874_040_840_8,
            -0.524_400_512_708_041, 0.0, 1.281_551_565_544_600_4, 3.719_016_485_455_680_4, 5.997_807_015_007_686_5,
            7.941_345_326_170_998,
        ];
        for (p, wanted) in points().zip(wanted) {
            let got = normal_quantile(p);
            assert!((got - wanted).abs() <= 4e-15 * wanted.abs(), "{p:?}: {got} instead of {wanted}");
            let back = normal_cdf(got);
            close(back.below.min(back.above), p.below.min(p.above), 1e-13, "there and back");
        }
    }

    #[test]
    fn gamma_quantiles_match_scipy() {
        for (shape, relative, wanted) in [
            (
                0.1,
                2e-13,
                [
                    6.073_048_362_407_918e-121, 6.073_048_362_408_003e-61, 6.073_048_362_407_834e-41,
                    6.073_048_362_407_912e-21, 3.586_086_018_410_967_4e-6, 5.933_911_044_602_284e-4,
                    0.266_154_553_738_837, 5.316_243_477_690_46, 15.927_231_025_901_014, 29.219_314_119_391_488,
                ],
            ),
            (
                2.0,
                1e-14,
                [
                    1.414_214_229_040_193e-6, 0.001_414_880_661_479_343_6, 0.014_209_237_621_777_5,
                    0.148_554_740_253_265_95, 1.097_349_210_703_491_7, 1.678_346_990_016_661_2, 3.889_720_169_867_429,
                    11.756_371_222_495_419, 23.939_727_865_573_97, 38.207_648_230_599_48,
                ],
            ),
            (
                3.0,
                1e-14,
                [
                    0.000_363_440_629_252_748_4 / 2.0,
                    0.036_508_565_926_558_594 / 2.0,
                    0.172_352_110_035_213_4 / 2.0,
                    0.872_090_330_156_586_3 / 2.0,
                    3.827_551_588_254_124_2 / 2.0,
                    5.348_120_627_447_118 / 2.0,
                    10.644_640_675_668_422 / 2.0,
                    27.856_341_236_013_918 / 2.0,
                    53.344_573_117_300_236 / 2.0,
                    82.675_070_081_492_52 / 2.0,
                ],
            ),
            (
                100_000.0,
                1e-12,
                [
                    97_791.635_869_235_78, 98_504.027_065_097_72, 98_828.218_513_205_98, 99_265.815_163_461_35,
                    99_833.928_639_285_12, 99_999.666_666_864_2, 100_405.475_710_245_23, 101_180.335_526_374_27,
                    101_908.346_223_837_9, 102_532.001_170_883_23,
                ],
            ),
        ] {
            // A large shape takes thousands of terms, each a thousand times as long under Miri.
            for (p, wanted) in points().zip(wanted).filter(|_| !cfg!(miri) || shape < 1_000.0) {
                close(gamma_quantile(shape, p), wanted, relative, &format!("shape {shape} at {p:?}"));
            }
        }
    }

    #[test]
    fn test_probabilities_match_scipy() {
        for (x, wanted) in [
            (0.3, 0.999_990_694_198_665_5),
            (0.5, 0.963_945_243_664_875_1),
            (1.0, 0.269_999_671_677_354_56),
            (1.358_1, 0.049_999_630_431_667_4),
            (2.0, 6.709_252_557_796_953e-4),
            (3.0, 3.045_995_948_942_526e-8),
        ] {
            // The correction vanishes for this many values.
            close(kolmogorov(x / 1e8, 1e16), wanted, 1e-7, "Kolmogorov");
        }
        close(chi2_above(9.0, 20.0), 0.017_912_404_529_843_298, 1e-12, "chi²");
        close(chi2_above(9.0, 60.0), 1.340_678_048_395_962_5e-9, 1e-12, "chi²");
    }
}
