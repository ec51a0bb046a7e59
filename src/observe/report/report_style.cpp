// SPDX-License-Identifier: Apache-2.0
// Colours are variables, so that dark screens change no more than their values. The parts of bars
// carry letters, and each chart has a table: no meaning is in a colour alone.
#include "report/report_style.hpp"

namespace lockstep {
namespace {

constexpr std::string_view style = R"(
:root{color-scheme:light dark;
--paper:#fcfcfa;--card:#fff;--ink:#1d2126;--soft:#5c646d;--faint:#dfe2e0;--grid:#ebedeb;
--good:#2b7350;--bad:#b3332b;--open:#8a6410;--tint:#f4f5f2;
--s0:#22648f;--s1:#b5571a;
--forward:#22648f;--backward:#5793ba;--update:#a3c9e1;--data:#e0962f;--copy:#f0c987;
--comm:#7857a3;--wait:#c4544c;--save:#35785a;--evaluate:#97bb73;--other:#b4b6b1;
--train:#22648f;--repeat:#c4544c;--start:#e0962f;--down:#8b8f96;
--h0:#b9d7e8;--h1:#edeeea;--h2:#fbdcae;--h3:#f4b160;--h4:#e07b34;--h5:#bb4426;--h6:#7d1d1f;
--on-dark:#fff;--on-light:#1d2126}
@media (prefers-color-scheme:dark){:root{
--paper:#14171a;--card:#1b1f23;--ink:#e7e9e6;--soft:#9ea6ad;--faint:#343a40;--grid:#282d32;
--good:#6fc096;--bad:#f0857b;--open:#dcb35c;--tint:#20252a;
--s0:#6fb4e0;--s1:#f0a060;
--forward:#3b84b5;--backward:#6facd3;--update:#b5d7ec;--data:#e6a145;--copy:#f3d29a;
--comm:#a283cf;--wait:#dc6d64;--save:#4f9c78;--evaluate:#a6c984;--other:#7d8287;
--train:#3b84b5;--repeat:#dc6d64;--start:#e6a145;--down:#666c73;
--h0:#2f5167;--h1:#2a2f34;--h2:#5e4a2a;--h3:#94662a;--h4:#cc7a33;--h5:#ec9562;--h6:#ffd0b5}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;
font-variant-numeric:tabular-nums;-webkit-text-size-adjust:100%}
main{max-width:1060px;margin:0 auto;padding:40px 28px 64px}
p{margin:0 0 .7em;max-width:74ch}
h1{font-size:30px;line-height:1.2;font-weight:650;letter-spacing:-.015em;margin:2px 0 14px;overflow-wrap:anywhere}
h2{font-size:19px;font-weight:650;letter-spacing:-.005em;margin:52px 0 6px;padding-top:14px;border-top:1px solid var(--faint)}
h3{font-size:14px;font-weight:600;margin:26px 0 8px}
.kicker{color:var(--soft);font-size:13px;margin:0}
.outcome{font-size:17px;line-height:1.5;overflow-wrap:anywhere}
.pill{display:inline-block;border:1.5px solid currentColor;border-radius:999px;padding:0 10px;
font-size:13px;font-weight:650;line-height:1.7;margin-right:8px;vertical-align:1.5px}
.good{color:var(--good)}.bad{color:var(--bad)}.open{color:var(--open)}
.note{color:var(--soft);font-size:14px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:1px;margin:26px 0 0;
background:var(--faint);border:1px solid var(--faint);border-radius:10px;overflow:hidden}
.tiles div{background:var(--card);padding:12px 16px 13px}
.tiles dt{color:var(--soft);font-size:12.5px}
.tiles dd{margin:1px 0 0;font-size:22px;font-weight:600;letter-spacing:-.01em;line-height:1.3}
.tiles small{display:block;color:var(--soft);font-size:12.5px;font-weight:400;letter-spacing:0}
.finding{background:var(--card);border:1px solid var(--faint);border-left:4px solid var(--soft);
border-radius:8px;padding:12px 18px 13px;margin:12px 0;break-inside:avoid}
.finding.problem{border-left-color:var(--bad)}.finding.warning{border-left-color:var(--open)}
.finding p{margin:0 0 3px;max-width:none;overflow-wrap:anywhere}
.finding .title{font-weight:600}
.weight{font-size:12px;font-weight:650;text-transform:uppercase;letter-spacing:.06em;margin-right:8px}
.problem .weight{color:var(--bad)}.warning .weight{color:var(--open)}.note .weight{color:var(--soft)}
pre,code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
pre{background:var(--tint);border-radius:6px;margin:8px 0 0;padding:8px 12px;white-space:pre-wrap;overflow-wrap:anywhere}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(320px,100%),1fr));gap:0 36px;margin:12px 0 0}
.facts div{display:flex;gap:14px;border-bottom:1px solid var(--grid);padding:5px 0}
.facts dt{color:var(--soft);flex:0 0 128px}
.facts dd{margin:0;overflow-wrap:anywhere;min-width:0}
.scroll{overflow-x:auto;margin:10px 0 0}
table{border-collapse:collapse;font-size:13.5px;min-width:100%}
th,td{text-align:left;padding:5px 18px 5px 0;white-space:nowrap;border-bottom:1px solid var(--grid)}
th{color:var(--soft);font-weight:500;border-bottom-color:var(--faint);vertical-align:bottom}
.n{text-align:right;padding-right:22px}
th.n{white-space:normal;line-height:1.25}
td.wrap{white-space:normal;overflow-wrap:anywhere}
details{margin:12px 0 0}summary{cursor:pointer;color:var(--soft);font-size:14px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:26px 30px;margin-top:14px}
figure{margin:0;break-inside:avoid}
figcaption{font-size:14px;font-weight:600;margin-bottom:2px}
.wide{margin-top:14px;overflow-x:auto}.wide svg{min-width:640px}
svg.chart{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:12px;fill:var(--soft)}
svg .label{fill:var(--ink)}
.grid{stroke:var(--grid)}.axis{stroke:var(--soft)}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.line.s0{stroke:var(--s0)}.line.s1{stroke:var(--s1);stroke-dasharray:6 4}
.dot.s0{fill:var(--s0)}.dot.s1{fill:var(--s1)}
.band{opacity:.18}.band.s0{fill:var(--s0)}.band.s1{fill:var(--s1)}
svg .name{font-weight:600}svg .name.s0{fill:var(--s0)}svg .name.s1{fill:var(--s1)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:5px 20px;margin:14px 0 6px;padding:0;font-size:13.5px}
.legend li{display:flex;align-items:center;gap:7px}
.key{display:inline-block;width:19px;height:19px;border-radius:3px;font-size:12px;font-weight:600;line-height:19px;text-align:center}
footer{margin-top:56px;border-top:1px solid var(--faint);padding-top:14px;color:var(--soft);font-size:13px}
@media print{:root{color-scheme:light}body{font-size:11pt}main{max-width:none;padding:0}
h2{break-after:avoid;margin-top:26px}.charts{grid-template-columns:1fr 1fr}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";

}  // namespace

std::string_view report_style() {
    return style;
}

}  // namespace lockstep
